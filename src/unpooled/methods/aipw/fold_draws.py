"""Estimates from several draws of the folds, combined as in Chernozhukov et al. (2018), section 3.4.

The estimate is the median over the draws. Its variance is the median of σ² + (τ − median)², so that it covers
how much the estimate depends on who was in which fold.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.methods.aipw.model import Estimates

ROUNDING = 1e-12
"""A smaller share of a variance counts as zero."""


class Combined(NamedTuple):
    """The sites' estimates [site, …] and their average over people. Errors of sites share `common`, a
    variance."""

    sites: Estimates
    overall: Estimates
    common: np.ndarray
    share: np.ndarray
    """How much a site counts in the average."""


def median(each: Estimates) -> Estimates:
    """The combined estimate of estimates [draw, ...].

    >>> found = median(Estimates(np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.5, 0.5])))
    >>> float(found.estimate), round(float(found.error) ** 2, 6)
    (2.0, 1.25)
    """
    return _about(each, np.median(each.estimate, axis=0))


def combined(each: Estimates, people: np.ndarray) -> Combined:
    """Combine the sites' estimates [draw, site, …], which stand for these numbers of people [site, …].

    The sites' estimates are those of the draw whose average over people is the median (or of both, for an
    even number), so that they add up to it. If the average varies more over the draws than the sites by
    themselves would make it, because they share regressions, the sites have this variance in common.
    """
    draws, total = len(each.estimate), people.sum(axis=0)
    share = people / np.where(total > 0.0, total, 1.0)
    overall = Estimates(
        np.sum(share * each.estimate, axis=1), np.sqrt(np.sum(share**2 * each.error**2, axis=1))
    )
    middle = np.argsort(overall.estimate, axis=0)[(draws - 1) // 2 : draws // 2 + 1]
    sites = _about(each, np.take_along_axis(each.estimate, middle[:, None], axis=0).mean(axis=0))
    average = _about(overall, np.sum(share * sites.estimate, axis=0))
    spare = 1.0 - np.sum(share**2, axis=0)
    excess = average.error**2 - np.sum(share**2 * sites.error**2, axis=0)
    # An excess within rounding errors is none: its square root would not be within rounding errors.
    real = (excess > ROUNDING * average.error**2) & (spare > 1e-9) & (draws > 1)
    common = np.where(real, excess / np.where(real, spare, 1.0), 0.0)
    variance = np.maximum(sites.error**2, common)
    error = np.sqrt(np.sum(share**2 * (variance - common), axis=0) + common)
    return Combined(
        Estimates(sites.estimate, np.sqrt(variance)), Estimates(average.estimate, error), common, share
    )


def _about(each: Estimates, centre: np.ndarray) -> Estimates:
    variance = np.median(each.error**2 + (each.estimate - centre) ** 2, axis=0)
    return Estimates(centre, np.sqrt(variance))
