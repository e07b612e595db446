"""Estimates from several draws of the folds, combined as in Chernozhukov et al. (2018), section 3.4.

The estimate is the median over the draws. Its variance is the median of σ² + (τ − median)², so that it covers
how much the estimate depends on who was in which fold.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.methods.aipw.model import Estimates, average

ROUNDING = 1e-12
"""A smaller share of a variance counts as zero."""


class Combined(NamedTuple):
    """The sites' estimates and their average over people. Errors of sites share `common`, a variance."""

    sites: Estimates
    overall: Estimates
    common: float


def median(each: Estimates) -> Estimates:
    """The combined estimate of estimates [draw, ...].

    >>> found = median(Estimates(np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.5, 0.5])))
    >>> float(found.estimate), round(float(found.error) ** 2, 6)
    (2.0, 1.25)
    """
    return _about(each, np.median(each.estimate, axis=0))


def combined(each: Estimates, people: np.ndarray) -> Combined:
    """Combine the sites' estimates [draw, site].

    The sites' estimates are those of the draw whose average over people is the median (or of both, for an
    even number), so that they add up to it. If the average varies more over the draws than the sites by
    themselves would make it, because they share regressions, the sites have this variance in common.
    """
    share = people / people.sum()
    overall = Estimates(
        *(
            np.array(part)
            for part in zip(*(average(_of(each, r), people) for r in range(len(each.estimate))), strict=True)
        )
    )
    order = np.argsort(overall.estimate)
    middle = order[(len(order) - 1) // 2 : len(order) // 2 + 1]
    sites = _about(each, each.estimate[middle].mean(axis=0))
    total = _about(overall, share @ sites.estimate)
    spare = 1.0 - share @ share
    excess = float(total.error**2 - share**2 @ sites.error**2)
    # An excess within rounding errors is none: its square root would not be within rounding errors.
    real = excess > ROUNDING * float(total.error**2)
    common = excess / spare if len(order) > 1 and spare > 1e-9 and real else 0.0
    variance = np.maximum(sites.error**2, common)
    error = np.sqrt(share**2 @ (variance - common) + common)
    return Combined(Estimates(sites.estimate, np.sqrt(variance)), Estimates(total.estimate, error), common)


def _about(each: Estimates, centre: np.ndarray) -> Estimates:
    variance = np.median(each.error**2 + (each.estimate - centre) ** 2, axis=0)
    return Estimates(centre, np.sqrt(variance))


def _of(each: Estimates, draw: int) -> Estimates:
    return Estimates(each.estimate[draw], each.error[draw])
