"""Diagnostic checks that PASS or FAIL against named thresholds, each with an explanation."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unpooled.diagnostics.heterogeneity import NAMES, SiteHeterogeneity
from unpooled.protocol.records import Check
from unpooled.study import ALL_SITES

OUTSIDE = 0.05
"""Largest acceptable share of people outside the common support."""
EFFECTIVE = 0.25
"""Smallest acceptable effective sample size, as a share of the arm."""
BALANCED = 0.1
"""Largest absolute standardised mean difference that is considered balanced."""
LEVEL = 0.05


def overlap_checks(outside: float, weights: pd.DataFrame) -> list[Check]:
    arms = weights.loc[weights["site"] == ALL_SITES]
    worth = float(np.min(arms["effective"].to_numpy() / arms["people"].to_numpy()))
    return [
        Check(
            "common support", outside <= OUTSIDE, outside, OUTSIDE,
            "Share of people for whom no one in the other arm has a similar propensity score. Above the "
            "threshold, their effects rely on extrapolation: restrict the study to people who could have "
            "received either treatment.",
        ),
        Check(
            "effective sample size", worth >= EFFECTIVE, worth, EFFECTIVE,
            "Effective sample size after weighting, as a share of the arm; the smaller of both shares. "
            "Below the threshold, a few people dominate the weighted estimates.",
        ),
    ]  # fmt: skip


def balance_check(balance: pd.DataFrame) -> Check:
    known = balance.dropna(subset=["after"])
    sizes = np.abs(known["after"].to_numpy())
    largest, name = (sizes.max(), known["feature"].iloc[sizes.argmax()]) if len(known) else (0.0, "none")
    return Check(
        "balance after weighting", bool(largest <= BALANCED), float(largest), BALANCED,
        f"Largest standardised mean difference after weighting, that of '{name}'. Above the threshold, the "
        "propensity model does not balance the arms, and estimates that rely on it alone are doubtful.",
    )  # fmt: skip


def agreement_check(pooled: SiteHeterogeneity) -> list[Check]:
    if "p_value" not in pooled or "i_squared" not in pooled:
        return []
    return [
        Check(
            "sites agree", pooled["p_value"] >= LEVEL, pooled["p_value"], LEVEL,
            f"p-value of Cochran's Q; I² is {pooled['i_squared']:.0%}. Below the threshold, effects differ "
            "between sites by more than chance: find out why before reporting a single number, and consider "
            "CausalRFF.",
        )
    ]  # fmt: skip


def comparison_check(interval: tuple[float, float], comparators: pd.DataFrame) -> Check:
    """Whether the study's own interval overlaps that of the doubly robust estimate."""
    simple = comparators.set_index("estimator").loc[NAMES["aipw"]]
    apart = max(interval[0] - simple["upper"], simple["lower"] - interval[1])
    return Check(
        "agrees with AIPW", bool(apart <= 0.0), float(apart), 0.0,
        "Distance between the two 95% intervals in the outcome's unit; negative if they overlap. If they do "
        "not overlap, at least one of the two models is probably wrong.",
    )  # fmt: skip
