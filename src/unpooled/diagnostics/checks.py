"""PASS or FAIL against named thresholds, each with a sentence for whoever reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from unpooled.diagnostics.heterogeneity import NAMES
from unpooled.study import ALL_SITES

OUTSIDE = 0.05
"""Most people whose like the other arm does not have."""
EFFECTIVE = 0.25
"""Least share of an arm that its weights may be worth."""
BALANCED = 0.1
"""Largest standardised difference that counts as balanced."""
LEVEL = 0.05


@dataclass(frozen=True)
class Check:
    """One question, what was found, and what it means."""

    name: str
    passed: bool
    found: float
    threshold: float
    words: str


def overlap_checks(outside: float, weights: pd.DataFrame) -> list[Check]:
    arms = weights.loc[weights["site"] == ALL_SITES]
    worth = float(np.min(arms["effective"].to_numpy() / arms["people"].to_numpy()))
    return [
        Check(
            "common support", outside <= OUTSIDE, outside, OUTSIDE,
            "Share of people with a propensity at which the other arm has nobody. Above the threshold, "
            "effects of these people rest on extrapolation: restrict the study to people who could have had "
            "either.",
        ),
        Check(
            "effective sample size", worth >= EFFECTIVE, worth, EFFECTIVE,
            "What weighting leaves of the arm that loses most. Below the threshold a few people carry the "
            "weighted estimates.",
        ),
    ]  # fmt: skip


def balance_check(balance: pd.DataFrame) -> Check:
    known = balance.dropna(subset=["after"])
    sizes = np.abs(known["after"].to_numpy())
    largest, name = (sizes.max(), known["feature"].iloc[sizes.argmax()]) if len(known) else (0.0, "none")
    return Check(
        "balance after weighting", bool(largest <= BALANCED), float(largest), BALANCED,
        f"Largest standardised difference between the weighted arms: of '{name}'. Above the threshold the "
        "propensity model does not explain who was treated; estimates that rest on it alone are doubtful.",
    )  # fmt: skip


def agreement_check(pooled: dict[str, Any]) -> list[Check]:
    if not pooled:
        return []
    return [
        Check(
            "sites agree", pooled["p_value"] >= LEVEL, pooled["p_value"], LEVEL,
            f"p-value of Cochran's Q; I² is {pooled['i_squared']:.0%}. Below the threshold sites' effects "
            "differ by more than chance: ask why before quoting one number, and see CausalRFF.",
        )
    ]  # fmt: skip


def comparison_check(interval: tuple[float, float], comparators: pd.DataFrame) -> Check:
    """Whether the study's own interval and that of the doubly robust estimate have anything in common."""
    simple = comparators.set_index("estimator").loc[NAMES["aipw"]]
    apart = max(interval[0] - simple["upper"], simple["lower"] - interval[1])
    return Check(
        "agrees with AIPW", bool(apart <= 0.0), float(apart), 0.0,
        "Gap between the two 95% intervals, in the outcome's unit; below 0 they overlap. A gap says that "
        "one of the two models is wrong.",
    )  # fmt: skip
