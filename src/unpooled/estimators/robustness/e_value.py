"""E-value of a fitted study: how strong unmeasured confounding must be to explain its estimate away."""

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
"""Confounding of this strength on top of what is adjusted for is nothing unusual."""


def of_analysis(analysis: Analysis) -> EValue:
    """By the outcome's family."""
    result, main = analysis.model.result_, analysis.main
    if analysis.study.columns.family == "continuous":
        return of_difference(main.estimate, main.sd, result.outcome_sd)
    share = treated_share(analysis.tables, analysis.study.columns.treatment, result.schema.treated)
    mean = result.scaling.outcome_mean
    return of_means(main.estimate, main.lower, main.upper, mean, share)


def treated_share(tables: Mapping[str, pd.DataFrame], treatment: str, treated: str) -> float:
    """Over all sites' people."""
    arms = [level_names(column(table, treatment)) == treated for table in tables.values()]
    return float(np.concatenate(arms).mean())


def finding(analysis: Analysis) -> RobustnessCheck:
    """In words; estimate and interval are the main analysis's own."""
    found, main = of_analysis(analysis), analysis.main
    if main.holds_zero:
        here = "Here the interval holds 0 as it is: there is no conclusion to lose."
    else:
        here = f"Here it is {found.interval:.2f}."
    words = (
        "Something unmeasured explains the estimate away only if it goes with treatment and with outcome by "
        f"risk ratios of {found.estimate:.2f} each, beyond what is adjusted for. Worrying is less than "
        f"{WEAK:g} at the interval's end nearest to 0: confounding that weak is common. {here}"
    )
    worrying = not main.holds_zero and found.interval < WEAK
    return RobustnessCheck(NAME, main.estimate, main.lower, main.upper, worrying, words)
