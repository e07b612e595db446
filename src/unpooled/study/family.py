"""The family of the outcome: named by the study, or chosen from what every site says of its values.

A site says which is the narrowest family that allows its values. The mean and the variance over all sites,
which standardisation needs in any case, tell counts from other whole numbers, such as ages, weights in grams
or answers on a scale from 1 to 5. No count with a Poisson or negative binomial distribution has a variance
below its mean.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

Family = Literal["continuous", "binary", "count"]
AskedFamily = Literal["auto", "continuous", "binary", "count"]
FAMILIES: tuple[Family, ...] = ("continuous", "binary", "count")

LARGEST_MEAN = 20.0
"""Whole numbers with a larger mean over all sites are not taken for counts."""
LEAST_DISPERSION = 0.5
"""Whole numbers whose variance is below this multiple of their mean are not taken for counts."""

WHY = {
    "binary": "0 or 1 at every site",
    "count": "whole numbers at every site, 0 or more, with a mean of at most "
    f"{LARGEST_MEAN:g} and a variance of at least half the mean",
    "continuous": "neither 0/1 nor small counts at every site",
}
"""Why a family was chosen, in words."""
MODELLED = {
    "continuous": "continuous",
    "binary": "binary (0/1)",
    "count": "a count",
}
"""The families in words."""


def resolve(asked: AskedFamily, allowed: Collection[Family], mean: float, variance: float) -> Family:
    """The family of the study; `allowed` is the narrowest one at each site.

    >>> resolve("auto", ["binary", "binary"], 0.4, 0.24), resolve("auto", ["binary", "count"], 1.5, 2.0)
    ('binary', 'count')
    >>> resolve("auto", ["count", "count"], 3200.0, 250_000.0), resolve("auto", ["count"], 3.1, 1.2)
    ('continuous', 'continuous')
    """
    if asked != "auto":
        return asked
    if set(allowed) == {"binary"}:
        return "binary"
    counted = set(allowed) <= {"binary", "count"}
    if counted and mean <= LARGEST_MEAN and variance >= LEAST_DISPERSION * mean:
        return "count"
    return "continuous"
