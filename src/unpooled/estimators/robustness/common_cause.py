"""Random common cause: adding a covariate of pure noise should not change the estimate."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unpooled.estimators.robustness.analysis import Analysis
from unpooled.estimators.robustness.refit import RobustnessCheck, furthest, times
from unpooled.study import Study

NAME = "common_cause"
COLUMN = "random_common_cause"
MOST = 0.5
"""Largest acceptable change of the estimate, in its standard deviations."""


def common_cause(analysis: Analysis) -> RobustnessCheck:
    """Compare the largest change over the refits with half a standard deviation."""
    name = unused(analysis.study.columns.names)

    def change(table: pd.DataFrame, site: str, random: np.random.Generator) -> pd.DataFrame:
        return with_noise(table, name, random)

    refits = analysis.refits(NAME, change, adjusting_for(analysis.study, name))
    worst, moved = furthest(refits, analysis.main)
    words = (
        f"Refitted {times(refits)} with an added covariate of pure noise. "
        f"The result is worrying if the estimate changes by more than {MOST:g} sd, because the analysis then "
        "fits noise. "
        f"The largest change is {moved:.2f} sd."
    )
    return RobustnessCheck(NAME, worst.estimate, worst.lower, worst.upper, moved > MOST, words, refits)


def with_noise(table: pd.DataFrame, name: str, random: np.random.Generator) -> pd.DataFrame:
    """A copy of the table with a standard normal column."""
    return table.assign(**{name: random.standard_normal(len(table))})


def adjusting_for(study: Study, name: str) -> Study:
    """The study with an additional covariate."""
    columns = {**study.columns.model_dump(), "covariates": (*study.columns.covariates, name)}
    return study.with_changes(columns=columns)


def unused(names: tuple[str, ...]) -> str:
    """A name that is not yet a column.

    >>> unused(("w", "y", "random_common_cause"))
    'random_common_cause_'
    """
    name = COLUMN
    while name in names:
        name += "_"
    return name
