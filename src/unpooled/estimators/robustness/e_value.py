"""E-value of a fitted study: how strong unmeasured confounding must be to explain the estimate away."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from unpooled.data.stored_columns import column, level_names
from unpooled.estimators.robustness.analysis import Analysis
from unpooled.estimators.robustness.refit import RobustnessCheck
from unpooled.maths.e_value import EValue, of_difference, of_means

NAME = "e_value"
WEAK = 1.5
"""Unmeasured confounding of this strength, as a risk ratio, is common."""


def of_analysis(analysis: Analysis) -> EValue:
    """The E-values, computed according to the outcome's family."""
    result, main = analysis.model.result_, analysis.main
    if result.scaling.family == "continuous":
        return of_difference(main.estimate, main.sd, result.outcome_sd)
    share = treated_share(analysis.tables, analysis.study.columns.treatment, result.schema.treated)
    mean = result.scaling.outcome_mean
    return of_means(main.estimate, main.lower, main.upper, mean, share)


def treated_share(tables: Mapping[str, pd.DataFrame], treatment: str, treated: str) -> float:
    """The share of treated people over all sites."""
    arms = [level_names(column(table, treatment)) == treated for table in tables.values()]
    return float(np.concatenate(arms).mean())


def e_value(analysis: Analysis) -> RobustnessCheck:
    """Compare the interval's E-value with `WEAK`; estimate and interval are those of the main analysis."""
    found, main = of_analysis(analysis), analysis.main
    if main.includes_zero:
        here = "Here the interval already includes 0, so there is no effect to explain away."
    else:
        here = f"Here it is {found.interval:.2f}."
    words = (
        "An unmeasured confounder explains the estimate away only if it is associated with both treatment "
        f"and outcome by risk ratios of at least {found.estimate:.2f} each, beyond the covariates. The "
        f"result is worrying if the E-value of the interval is below {WEAK:g}, because such weak "
        f"confounding is common. {here}"
    )
    worrying = not main.includes_zero and found.interval < WEAK
    return RobustnessCheck(NAME, main.estimate, main.lower, main.upper, worrying, words)
