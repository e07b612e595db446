"""From sites' sums to estimates with influence-function standard errors, by site and over all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from unpooled.protocol.messages import Tree

ALPHA = 0.05


class Estimates(NamedTuple):
    """Estimates and standard errors, of the same shape."""

    estimate: np.ndarray
    error: np.ndarray


def of_scores(sums: Tree) -> Estimates:
    """The mean of doubly robust scores, and the standard error of that mean."""
    people, mean = sums["people"], sums["sum"] / sums["people"]
    spread = np.maximum(sums["square"] / people - mean**2, 0.0)
    return Estimates(mean, np.sqrt(spread / np.maximum(people - 1.0, 1.0)))


def of_weights(sums: Tree) -> Estimates:
    """Difference of weighted means; errors take the propensities as known, and equal weights give Welch's."""
    people, weight = sums["people"], sums["sums"][..., 0]
    mean = sums["sums"][..., 1] / weight
    one, outcome, square = np.moveaxis(sums["squares"], -1, 0)
    spread = np.maximum(square - 2.0 * mean * outcome + mean**2 * one, 0.0) / weight**2
    variance = spread * people / np.maximum(people - 1.0, 1.0)
    return Estimates(mean[..., 1] - mean[..., 0], np.sqrt(variance.sum(axis=-1)))


def average(sites: Estimates, people: np.ndarray) -> Estimates:
    """Over all sites' people; the sites' estimates are independent but for what the regressions share."""
    share = people / people.sum()
    return Estimates(share @ sites.estimate, np.sqrt(share**2 @ sites.error**2))


def told(found: Estimates, scale: float) -> dict[str, Any]:
    """Numbers for people, in the outcome's units."""
    return {"estimate": (scale * found.estimate).tolist(), "standard_error": (scale * found.error).tolist()}


def told_with_interval(found: Estimates, scale: float) -> dict[str, Any]:
    """Of one estimate; the interval is the normal one of 95 %."""
    reach = ndtri(1.0 - ALPHA / 2.0) * found.error
    ends = [scale * float(found.estimate - reach), scale * float(found.estimate + reach)]
    return {**told(found, scale), "interval": ends}
