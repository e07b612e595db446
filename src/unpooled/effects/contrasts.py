"""Average effects by name: differences, ratios, odds ratios and numbers needed to treat, from mean outcomes.

An estimate compares the means of the draws of both arms. An interval is that of the draws of the comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from unpooled.effects.summary import interval
from unpooled.study.family import Family


class Contrast(NamedTuple):
    """A comparison of mean outcomes."""

    of: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """The comparison, of means under control and under treatment."""
    families: tuple[Family, ...]
    """The outcomes for which it is meant."""


ALL: tuple[Family, ...] = ("continuous", "binary", "count")
CONTROL, TREATED, DIFFERENCE = "control", "treated", "difference"
RATIO, ODDS_RATIO, NUMBER_NEEDED = "ratio", "odds ratio", "number needed to treat"
CONTRASTS: dict[str, Contrast] = {
    CONTROL: Contrast(lambda control, treated: control, ALL),
    TREATED: Contrast(lambda control, treated: treated, ALL),
    DIFFERENCE: Contrast(lambda control, treated: treated - control, ALL),
    RATIO: Contrast(lambda control, treated: treated / control, ALL),
    ODDS_RATIO: Contrast(
        lambda control, treated: treated * (1.0 - control) / (control * (1.0 - treated)), ("binary",)
    ),
    NUMBER_NEEDED: Contrast(lambda control, treated: 1.0 / (treated - control), ("binary",)),
}
"""Mean outcomes, and the effects that compare them."""
CLEARLY = 1e-3
"""A mean is clearly above a value if at most this share of its draws is not."""
UNKNOWN = "not known: the site has nobody in this group, or people in one arm only"
NEAR_ZERO = "not defined: the mean outcome of an arm is not clearly above 0"
NEAR_ONE = "not defined: the risk of an arm is not clearly below 1"
NOBODY = "nobody at these sites counts in this group"
DIFFERENCES_ONLY = "this method estimates the difference only"
NEEDED = "people treated for one event more; of fewer events, with a minus sign"
THROUGH_INFINITY = (
    "the interval of the difference has 0 in it, so that this one has two parts: up to the lower end, and "
    "from the upper end on"
)


class Found(NamedTuple):
    """An estimate with its interval; NaN with a note if it is not defined."""

    estimate: float
    lower: float
    upper: float
    note: str = ""


def contrast(name: str, draws: np.ndarray, alpha: float = 0.05, *, differences_only: bool = False) -> Found:
    """A comparison by name, from draws [K, arm] of the mean outcomes.

    >>> risks = np.stack([np.full(100, 0.2), np.full(100, 0.3)], axis=1)
    >>> round(contrast("odds ratio", risks).estimate, 3), round(contrast("ratio", risks).upper, 3)
    (1.714, 1.5)
    """
    if np.all(np.isnan(draws)):
        return Found(np.nan, np.nan, np.nan, UNKNOWN)
    if differences_only and name not in (DIFFERENCE, NUMBER_NEEDED):
        return Found(np.nan, np.nan, np.nan, DIFFERENCES_ONLY)
    undefined = _undefined(name, draws)
    if undefined:
        return Found(np.nan, np.nan, np.nan, undefined)
    of, means = CONTRASTS[name].of, draws.mean(axis=0)
    if name == NUMBER_NEEDED:
        return _number_needed(draws, alpha)
    lower, upper = interval(of(draws[:, 0], draws[:, 1]), alpha)
    return Found(float(of(*means)), float(lower), float(upper))


def effects_table(
    draws: np.ndarray, groups: list[str], family: Family, alpha: float, *, differences_only: bool = False
) -> pd.DataFrame:
    """All effects of groups of people, from draws [K, group, arm] of their mean outcomes."""
    names = [name for name, one in CONTRASTS.items() if family in one.families]
    rows = [
        {
            "group": group,
            "effect": name,
            **contrast(name, draws[:, place], alpha, differences_only=differences_only)._asdict(),
        }
        for place, group in enumerate(groups)
        for name in names
    ]
    return pd.DataFrame(rows).set_index(["group", "effect"])


def _undefined(name: str, draws: np.ndarray) -> str:
    """Why an effect is not defined; empty if it is."""
    if not np.isfinite(draws).all():
        return NOBODY
    if name in (RATIO, ODDS_RATIO) and np.any(np.mean(draws <= 0.0, axis=0) > CLEARLY):
        return NEAR_ZERO
    if name == ODDS_RATIO and np.any(np.mean(draws >= 1.0, axis=0) > CLEARLY):
        return NEAR_ONE
    return ""


def _number_needed(draws: np.ndarray, alpha: float) -> Found:
    """1/difference; its interval has the inverse ends of that of the difference."""
    difference = draws[:, 1] - draws[:, 0]
    lower, upper = interval(difference, alpha)
    with np.errstate(divide="ignore"):
        estimate, ends = float(1.0 / np.mean(difference)), sorted((1.0 / lower, 1.0 / upper))
    return Found(estimate, *map(float, ends), note=NEEDED if lower * upper > 0.0 else THROUGH_INFINITY)
