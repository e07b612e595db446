"""Stand-ins for the tables of a study that does not exist yet: random numbers in its columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from unpooled.errors import StudyError
from unpooled.study import Study
from unpooled.study.subgroups import about_as_many

ROWS = 60
"""Rows of a stand-in."""


@dataclass(frozen=True)
class Size:
    """The size of a study: its number of sites, and the rows and features of each.

    Parameters
    ----------
    sites : int
        Number of sites.
    rows : int
        Number of rows of a site; the largest if they differ.
    features : int, optional
        Number of columns of the covariates after coding: one for a number, and one less than its levels for
        a category. By default, one for each covariate of the study.

    Examples
    --------
    >>> Size(sites=200, rows=50_000, features=30)
    Size(sites=200, rows=50000, features=30)
    """

    sites: int
    rows: int
    features: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("sites", 1), ("rows", 10), ("features", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise StudyError(
                    f"the number of {name} must be at least {least}",
                    found=f"{value}",
                    remedy=f"give the {name} of the study that is planned",
                )


def columns_of(study: Study, size: Size) -> Study:
    """The study with as many covariates as it has features, each of them a number."""
    columns = study.columns
    flags = len(columns.incomplete) if columns.missing == "indicator" else 0
    further = len(columns.incomplete) + flags
    complete = len(columns.covariates) if size.features is None else size.features - further
    if complete < 1:
        raise StudyError(
            "a study needs at least one complete covariate",
            found=f"{size.features} features, {further} of them incomplete",
            remedy="give more features",
        )
    changed = columns.model_copy(
        update={"covariates": tuple(f"covariate {place}" for place in range(complete)), "treated": None}
    )
    # As many subgroups, of a column that exists.
    groups = {f"group {place}": "`covariate 0` > 0" for place in range(about_as_many(study.subgroups))}
    return study.model_copy(update={"columns": changed, "subgroups": groups, "sites": {}})


def stand_ins(study: Study) -> dict[str, pd.DataFrame]:
    """Tables of two sites with the study's columns."""
    rng, columns = np.random.default_rng(0), study.columns
    tables = {}
    for name in ("first", "second"):
        values = rng.standard_normal((ROWS, len(columns.covariates) + len(columns.incomplete)))
        table = pd.DataFrame(values, columns=[*columns.covariates, *columns.incomplete])
        for column in () if columns.missing == "complete cases" else columns.incomplete:
            table.loc[rng.integers(0, 3, ROWS) == 0, column] = np.nan
        outcome = {"binary": rng.integers(0, 2, ROWS), "count": rng.poisson(2.0, ROWS)}
        table[columns.treatment] = np.arange(ROWS) % 2
        table[columns.outcome] = outcome.get(columns.family, rng.standard_normal(ROWS))
        design = [one for one in (columns.weight, columns.cluster) if one is not None]
        tables[name] = table.assign(**{one: 1 + np.arange(ROWS) for one in (*columns.identity, *design)})
    return tables
