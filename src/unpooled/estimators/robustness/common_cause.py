"""Random common cause: one more covariate, of pure noise, must not move the estimate."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unpooled.estimators.robustness.analysis import Analysis
from unpooled.estimators.robustness.refit import RobustnessCheck, furthest, times
from unpooled.study import Study

NAME = "common_cause"
COLUMN = "random_common_cause"
MOST = 0.5
"""How far the estimate may move, in its sds."""


def common_cause(analysis: Analysis) -> RobustnessCheck:
    """The refit that moved most, against half an sd."""
    name = unused(analysis.study.columns.names)

    def change(table: pd.DataFrame, site: str, random: np.random.Generator) -> pd.DataFrame:
        return with_noise(table, name, random)

    refits = analysis.again(NAME, change, adjusting_for(analysis.study, name))
    worst, moved = furthest(refits, analysis.main)
    words = (
        f"A covariate of pure noise added, {times(refits)}. "
        f"Worrying is an estimate that moves by more than {MOST:g} sd: the analysis then follows noise. "
        f"This one moved by {moved:.2f} sd."
    )
    return RobustnessCheck(NAME, worst.estimate, worst.lower, worst.upper, moved > MOST, words, refits)


def with_noise(table: pd.DataFrame, name: str, random: np.random.Generator) -> pd.DataFrame:
    """A copy with a standard normal column."""
    return table.assign(**{name: random.standard_normal(len(table))})


def adjusting_for(study: Study, name: str) -> Study:
    """The study with one more covariate."""
    columns = {**study.columns.model_dump(), "covariates": (*study.columns.covariates, name)}
    return Study(**{**study.model_dump(), "columns": columns})


def unused(names: tuple[str, ...]) -> str:
    """A name that no column has.

    >>> unused(("w", "y", "random_common_cause"))
    'random_common_cause_'
    """
    name = COLUMN
    while name in names:
        name += "_"
    return name
