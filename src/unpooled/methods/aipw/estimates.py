"""From sites' sums to estimates with influence-function standard errors, by site and over all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from unpooled.disclosure.by_site import BySite
from unpooled.protocol.records import Arrays

ALPHA = 0.05


class Estimates(NamedTuple):
    """Estimates and standard errors, of the same shape."""

    estimate: np.ndarray
    error: np.ndarray


def of_scores(sums: Arrays) -> Estimates:
    """The mean of doubly robust scores, and the standard error of that mean."""
    people = sums["people"]
    return Estimates(sums["mean"], np.sqrt(sums["squares"] / people / np.maximum(people - 1.0, 1.0)))


def stacked_scores(sums: Arrays) -> Arrays:
    """The sums of all sites' people as one table; deviations are from the common mean."""
    people, total = sums["people"], sums["people"].sum()
    mean = people @ sums["mean"] / total
    squares = np.sum(sums["squares"] + people * (sums["mean"] - mean) ** 2)
    return {"people": total, "mean": mean, "squares": squares}


def of_weights(sums: Arrays) -> Estimates:
    """Difference of weighted means; errors take the propensities as known, and equal weights give Welch's."""
    people, mean = sums["people"], sums["mean"]
    spread = sums["squares"][..., 2] / sums["weight"] ** 2
    variance = spread * people / np.maximum(people - 1.0, 1.0)
    return Estimates(mean[..., 1] - mean[..., 0], np.sqrt(variance.sum(axis=-1)))


def stacked_weights(sums: Arrays) -> Arrays:
    """As `stacked_scores`, by arm."""
    weight = sums["weight"].sum(axis=0)
    mean = np.sum(sums["weight"] * sums["mean"], axis=0) / weight
    one, first, second = np.moveaxis(sums["squares"], -1, 0)
    apart = sums["mean"] - mean
    moved = [one, first + apart * one, second + 2.0 * apart * first + apart**2 * one]
    squares = np.stack(moved, axis=-1).sum(axis=0)
    return {"people": sums["people"].sum(axis=0), "weight": weight, "mean": mean, "squares": squares}


def average(sites: Estimates, people: np.ndarray) -> Estimates:
    """Over all sites' people; the sites' estimates are independent but for what the regressions share."""
    share = people / people.sum()
    return Estimates(share @ sites.estimate, np.sqrt(share**2 @ sites.error**2))


def told(found: Estimates, scale: float) -> dict[str, Any]:
    """Numbers for people, in the outcome's units."""
    return {"estimate": float(scale * found.estimate), "standard_error": float(scale * found.error)}


def told_by_site(found: Estimates, scale: float) -> dict[str, Any]:
    """The same for every site."""
    return {"estimate": BySite(scale * found.estimate), "standard_error": BySite(scale * found.error)}


def told_with_interval(found: Estimates, scale: float) -> dict[str, Any]:
    """Of one estimate; the interval is the normal one of 95 %."""
    reach = ndtri(1.0 - ALPHA / 2.0) * found.error
    ends = {"lower": scale * float(found.estimate - reach), "upper": scale * float(found.estimate + reach)}
    return {**told(found, scale), **ends}
