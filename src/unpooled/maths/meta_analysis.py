"""Estimates of several studies with their standard errors, pooled by inverse variance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

SMALLEST_ERROR = 1e-6
"""Standard errors up to this many sds of the outcome are rounding: such a study would get all the weight."""


class Pooled(NamedTuple):
    """A common effect or the mean of effects that differ, its standard error, and each study's weight."""

    estimate: float
    error: float
    weights: np.ndarray


class Heterogeneity(NamedTuple):
    """How much estimates differ beyond their standard errors."""

    q: float
    """Cochran's Q."""
    degrees: int
    p_value: float
    """Of Q, if all studies had one effect."""
    i_squared: float
    """Share of the estimates' variance that is not chance, from 0 to 1."""
    tau_squared: float
    """Variance of the studies' effects, by DerSimonian and Laird."""


class Shrunken(NamedTuple):
    """Each study's effect given all of them and the mean μ: constant + slope·μ, with this sd about it."""

    constant: np.ndarray
    slope: np.ndarray
    sd: np.ndarray


def pool(estimates: np.ndarray, errors: np.ndarray, tau_squared: float = 0.0) -> Pooled:
    """Fixed effect without τ², random effects with it.

    >>> found = pool(np.array([1.0, 3.0]), np.array([1.0, 1.0]))
    >>> found.estimate, round(found.error, 4)
    (2.0, 0.7071)
    """
    precision = 1.0 / (errors**2 + tau_squared)
    total = precision.sum()
    weights = precision / total
    return Pooled(float(weights @ estimates), float(1.0 / np.sqrt(total)), weights)


def heterogeneity(estimates: np.ndarray, errors: np.ndarray) -> Heterogeneity:
    """Q, I² and τ²; of one study nothing can be said, and all are 0."""
    precision = 1.0 / errors**2
    q = float(precision @ (estimates - pool(estimates, errors).estimate) ** 2)
    degrees = len(estimates) - 1
    if degrees == 0:
        return Heterogeneity(0.0, 0, 1.0, 0.0, 0.0)
    excess = max(q - degrees, 0.0)
    scale = precision.sum() - (precision**2).sum() / precision.sum()
    share = excess / q if q > 0.0 else 0.0
    return Heterogeneity(q, degrees, float(chi2.sf(q, degrees)), share, float(excess / scale))


def shrunken(estimates: np.ndarray, errors: np.ndarray, tau_squared: float) -> Shrunken:
    """Empirical Bayes: an estimate moves to the mean by its share of chance, v / (v + τ²)."""
    variance = errors**2
    slope = variance / (variance + tau_squared)
    return Shrunken((1.0 - slope) * estimates, slope, np.sqrt(slope * tau_squared))
