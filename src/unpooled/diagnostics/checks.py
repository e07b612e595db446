"""Diagnostic checks that PASS or FAIL against named thresholds, each with an explanation."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unpooled.diagnostics.heterogeneity import NAMES, SiteHeterogeneity
from unpooled.methods.aipw.checks import EFFECTIVE
from unpooled.protocol.records import Check
from unpooled.study import ALL_SITES

OUTSIDE = 0.05
"""Largest acceptable share of people outside the common support."""
FEW_COMPARABLE = 0.25
"""Largest acceptable share of people with a propensity score below 0.1 or above 0.9. Normal log odds of
treatment have such a share if their standard deviation is 2: odds a sd below and above the mean differ by a
factor of 50."""
BALANCED = 0.1
"""Largest absolute standardised mean difference that is considered balanced."""
LEVEL = 0.05


def overlap_checks(outside: float, extreme: float, weights: pd.DataFrame) -> list[Check]:
    arms = weights.loc[weights["site"] == ALL_SITES]
    worth = float(np.min(arms["effective"].to_numpy() / arms["people"].to_numpy()))
    return [
        Check.at_most(
            "common support", outside, OUTSIDE,
            "Share of people for whom no one in the other arm has similar odds of treatment. Up to the "
            "threshold, nearly everybody has a counterpart. Above it, effects rely on extrapolation: "
            "restrict the study to people who could have received either treatment.",
        ),
        Check.at_most(
            "extreme propensities", extreme, FEW_COMPARABLE,
            "Share of people with a propensity score below 0.1 or above 0.9. Up to the threshold, most "
            "people could have received either treatment. Above it, they are compared with few people of the "
            "other arm: restrict the study, or, if one arm is merely rare and the covariates are balanced, "
            "expect wide intervals.",
        ),
        Check.at_least(
            "effective sample size", worth, EFFECTIVE,
            "Effective sample size after weighting, as a share of the arm; the smaller of both shares. "
            "From the threshold on, the weights are spread over enough people. Below it, a few people "
            "dominate the weighted estimates.",
        ),
    ]  # fmt: skip


def balance_check(balance: pd.DataFrame) -> Check:
    known = balance.dropna(subset=["after"])
    sizes = np.abs(known["after"].to_numpy())
    largest, name = (sizes.max(), known["feature"].iloc[sizes.argmax()]) if len(known) else (0.0, "none")
    return Check.at_most(
        "balance after weighting", largest, BALANCED,
        f"Largest standardised mean difference after weighting, that of '{name}'. Up to the threshold, the "
        "weights make the arms comparable. Above it, the propensity model does not balance the arms, and "
        "estimates that rely on it alone are doubtful.",
    )  # fmt: skip


def agreement_check(pooled: SiteHeterogeneity) -> list[Check]:
    if "p_value" not in pooled or "i_squared" not in pooled:
        return []
    return [
        Check.at_least(
            "sites agree", pooled["p_value"], LEVEL,
            f"p-value of Cochran's Q; I² is {pooled['i_squared']:.0%}. From the threshold on, the sites' "
            "estimates differ no more than by chance, which is weak evidence if sites are few. Below it, "
            "effects differ between sites by more than chance: find out why before reporting a single "
            "number, and consider CausalRFF.",
        )
    ]  # fmt: skip


def comparison_check(interval: tuple[float, float], comparators: pd.DataFrame) -> Check:
    """Whether the study's own interval overlaps that of the doubly robust estimate."""
    simple = comparators.set_index("estimator").loc[NAMES["aipw"]]
    apart = max(interval[0] - simple["upper"], simple["lower"] - interval[1])
    return Check.at_most(
        "agrees with AIPW", apart, 0.0,
        "Distance between the two 95% intervals in the outcome's unit. At 0 or below they overlap, and the "
        "simpler estimate does not contradict the study. Above 0 they do not, and at least one of the two "
        "models is probably wrong.",
    )  # fmt: skip
