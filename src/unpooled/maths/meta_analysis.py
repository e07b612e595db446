"""Meta-analysis: estimates with standard errors from several studies, pooled by inverse variance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc, ndtri, stdtrit

SMALLEST_ERROR = 1e-6
"""Standard errors below this many outcome sds are due to rounding; such a study would get all the weight."""


class Pooled(NamedTuple):
    """The pooled effect (common, or the mean of differing effects), its standard error and the weights."""

    estimate: float
    error: float
    weights: np.ndarray


class RandomEffects(NamedTuple):
    """The mean of differing effects by Hartung and Knapp: intervals have Student's t with k − 1 degrees."""

    estimate: float
    error: float
    prediction_error: float
    """Standard deviation of the effect of another study: of the mean's error and of the effects."""
    degrees: int
    weights: np.ndarray


class Heterogeneity(NamedTuple):
    """How much the estimates differ beyond their standard errors."""

    q: float
    """Cochran's Q."""
    degrees: int
    p_value: float
    """Of Q, under the hypothesis that all studies have the same effect."""
    i_squared: float
    """Share of the variance of the estimates that is not due to chance, from 0 to 1."""
    tau_squared: float
    """Variance of the true effects, by DerSimonian and Laird."""


class Shrunken(NamedTuple):
    """Each study's effect given all estimates and the mean μ: constant + slope·μ with a spread of sd."""

    constant: np.ndarray
    slope: np.ndarray
    sd: np.ndarray


def pool(estimates: np.ndarray, errors: np.ndarray, tau_squared: float = 0.0) -> Pooled:
    """Fixed-effect pooling without τ², random-effects pooling with it.

    >>> found = pool(np.array([1.0, 3.0]), np.array([1.0, 1.0]))
    >>> found.estimate, round(found.error, 4)
    (2.0, 0.7071)
    """
    precision = 1.0 / (errors**2 + tau_squared)
    total = precision.sum()
    weights = precision / total
    return Pooled(float(weights @ estimates), float(1.0 / np.sqrt(total)), weights)


def random_effects(estimates: np.ndarray, errors: np.ndarray, tau_squared: float) -> RandomEffects:
    """Random-effects pooling with the modified standard error of Hartung and Knapp.

    The usual variance is multiplied by Σw(y − μ)²/(k − 1), but by 1 if this is less (Röver et al. 2015).

    >>> found = random_effects(np.array([1.0, 3.0, 8.0]), np.ones(3), tau_squared=0.0)
    >>> found.estimate, round(found.error, 4), found.degrees
    (4.0, 2.0817, 2)
    """
    mean, error, weights = pool(estimates, errors, tau_squared)
    degrees = len(estimates) - 1
    spread = np.sum((estimates - mean) ** 2 / (errors**2 + tau_squared)) / max(degrees, 1)
    error = float(error * np.sqrt(max(spread, 1.0)))
    return RandomEffects(mean, error, float(np.sqrt(tau_squared + error**2)), degrees, weights)


def quantile(level: float, degrees: int) -> float:
    """The quantile of Student's t or, without degrees of freedom, of the normal distribution."""
    return float(stdtrit(degrees, level) if degrees else ndtri(level))


def heterogeneity(estimates: np.ndarray, errors: np.ndarray) -> Heterogeneity:
    """Q, I² and τ²; with a single study all of them are 0."""
    precision = 1.0 / errors**2
    q = float(precision @ (estimates - pool(estimates, errors).estimate) ** 2)
    degrees = len(estimates) - 1
    if degrees == 0:
        return Heterogeneity(0.0, 0, 1.0, 0.0, 0.0)
    excess = max(q - degrees, 0.0)
    scale = precision.sum() - (precision**2).sum() / precision.sum()
    share = excess / q if q > 0.0 else 0.0
    return Heterogeneity(q, degrees, float(chdtrc(degrees, q)), share, float(excess / scale))


def shrunken(estimates: np.ndarray, errors: np.ndarray, tau_squared: float) -> Shrunken:
    """Empirical Bayes: each estimate is shrunk towards the mean by v / (v + τ²)."""
    variance = errors**2
    slope = variance / (variance + tau_squared)
    return Shrunken((1.0 - slope) * estimates, slope, np.sqrt(slope * tau_squared))
