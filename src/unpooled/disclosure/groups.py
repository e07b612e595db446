"""Sizes of the groups of people whose data a site's replies are computed from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from unpooled.study import ColumnSchema, Schema

MANY_VALUES = 10
"""Values of a column are counted unless it takes more than this many."""
FEW_VALUES = 3
"""With this many distinct values, the number of people with each follows from a column's mean and sd."""
ValueCounts = Counter[float]
"""Number of people with each value of a column."""


def value_counts(column: np.ndarray) -> ValueCounts | None:
    """Number of people with each value, None if there are many values; NaN is a missing value.

    >>> value_counts(np.array([0.0, 7.0, 7.0, np.nan])) == {0.0: 1, 7.0: 2}
    True
    """
    for part in (column[: 100 * MANY_VALUES], column):  # the first people show most columns of many values
        values, counts = np.unique(part[~np.isnan(part)], return_counts=True)
        if len(values) > MANY_VALUES:
            return None
    return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def value_cells(names: Sequence[str], columns: Sequence[ValueCounts | None]) -> dict[str, int]:
    """Number of people with the rarest value of each column that takes few values.

    >>> value_cells(["a", "b"], [Counter({0.0: 3, 7.0: 2}), None])
    {'a (rarest value)': 2}
    """
    return {
        f"{name} (rarest value)": min(counts.values())
        for name, counts in zip(names, columns, strict=True)
        if counts is not None and 1 < len(counts) <= FEW_VALUES
    }


def observed_cells(schema: Schema, incomplete: np.ndarray) -> dict[str, int]:
    """Number of observed values of each incomplete column, and of each level of its 0/1 features."""
    cells, start = {}, 0
    for column in schema.incomplete:
        values = incomplete[:, start : start + len(column.features)]
        start += len(column.features)
        seen = values[~np.isnan(values).any(axis=1)]
        if len(seen):
            cells |= {f"{column.name} (not missing)": len(seen)} | level_cells((column,), seen)
    return cells


def level_cells(
    columns: tuple[ColumnSchema, ...], covariates: np.ndarray, gaps: np.ndarray | None = None
) -> dict[str, int]:
    """Number of people with each value of each 0/1 feature, and with each categorical reference level.

    People whose value was missing and filled, by column in `gaps`, do not count.
    """
    cells, start = {}, 0
    for place, column in enumerate(columns):
        features = slice(start, start + len(column.features))
        start += len(column.features)
        values = covariates[:, features] if gaps is None else covariates[~gaps[:, place], features]
        people, ones = len(values), values.sum(axis=0).astype(int)
        if column.kind in ("numeric", "count"):
            continue
        cells |= dict(zip(column.features, ones.tolist(), strict=True))
        cells |= {f"{name} (zeros)": people - one for name, one in zip(column.features, ones, strict=True)}
        if column.kind == "categorical":
            cells[f"{column.name} (first level)"] = people - int(ones.sum())
    return cells
