"""Effects in several groups side by side: simultaneous intervals, and a test of whether the effects differ.

Both use that draws of different groups belong together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.effects.summary import interval

SINGULAR = 1e-9
"""Directions with a smaller share of the largest variance do not vary."""


class Wald(NamedTuple):
    """A Wald test: its statistic, degrees of freedom and p-value."""

    statistic: float
    degrees: int
    p_value: float


def simultaneous_interval(draws: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Intervals of all groups, from draws [K, group], that hold together with probability 1 − α.

    The interval of group g is mean ± c·sd, where c is the quantile of max |t| over the groups, by draw.
    """
    mean, sd = draws.mean(axis=0), draws.std(axis=0, ddof=1)
    deviation = np.abs(draws - mean) / np.where(sd > 0.0, sd, 1.0)
    reach = np.quantile(deviation.max(axis=1, initial=0.0), 1.0 - alpha) * sd
    return mean - reach, mean + reach


def gate_columns(draws: np.ndarray, alpha: float) -> dict[str, np.ndarray]:
    """Effect, interval and simultaneous interval of each group, from draws [K, group]; NaN if not known."""
    known = np.isfinite(draws).all(axis=0)
    lower, upper = interval(draws, alpha)
    together = np.full((2, draws.shape[1]), np.nan)
    together[:, known] = simultaneous_interval(draws[:, known], alpha)
    return {
        "effect": draws.mean(axis=0),
        "lower": lower,
        "upper": upper,
        "simultaneous_lower": together[0],
        "simultaneous_upper": together[1],
    }


def equal_effects(draws: np.ndarray) -> Wald:
    """Wald test that all groups have the same effect, from draws [K, group].

    With d the differences from the last group and S their covariance over the draws, dᵀS⁻¹d is compared with
    Hotelling's distribution, which takes into account that S rests on K draws.
    """
    from scipy.stats import f

    differences = draws[:, :-1] - draws[:, -1:]
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(differences, rowvar=False)))
    varies = values > SINGULAR * max(float(values.max()), float(np.var(draws)))
    count, degrees = len(draws), int(varies.sum())
    if not degrees or count <= degrees:
        return Wald(np.nan, degrees, np.nan)
    along = differences.mean(axis=0) @ vectors[:, varies]
    statistic = float(np.sum(along**2 / values[varies]))
    ratio = statistic * (count - degrees) / ((count - 1) * degrees)
    return Wald(statistic, degrees, float(f.sf(ratio, degrees, count - degrees)))
