"""What a site says of its table before the sites agree on a schema."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

from unpooled.data.kinds import level_names, numbers, stored_as
from unpooled.data.presence import column
from unpooled.study import LARGEST_COUNT, Column, Columns, Description


def describe(frame: pd.DataFrame, columns: Columns) -> Description:
    """Rows, rows per treatment level, and the kind of each covariate, of a table that passed ``check``.

    >>> columns = Columns(treatment="quit", outcome="weight", covariates=("age",))
    >>> frame = pd.DataFrame({"quit": [0, 1, 1], "weight": [1.5, 0.2, 2.0], "age": [50, 61, 44]})
    >>> describe(frame, columns).arms
    {'0': 1, '1': 2}
    """
    arms = Counter(level_names(column(frame, columns.treatment)))
    return Description(
        rows=len(frame),
        arms={str(level): arms[level] for level in sorted(arms)},
        columns=tuple(describe_column(column(frame, name)) for name in columns.covariates),
        incomplete=tuple(
            describe_column(seen, counts=True)
            for seen in (column(frame, name).dropna() for name in columns.incomplete)
            if len(seen)
        ),
    )


def describe_column(series: pd.Series, *, counts: bool = False) -> Column:
    """Numbers that are all 0 or 1 are binary, other numbers numeric, text and categories categorical.

    With `counts`, small whole numbers from 0 on are counts; large ones are as good as any number.
    """
    name = str(series.name)
    if stored_as(series) == "text":
        return Column(name=name, kind="categorical", levels=tuple(sorted(set(level_names(series)))))
    values = numbers(series)
    if np.isin(values, (0, 1)).all():
        return Column(name=name, kind="binary")
    whole = counts and np.isin(values, np.arange(LARGEST_COUNT + 1)).all()
    return Column(name=name, kind="count" if whole else "numeric")
