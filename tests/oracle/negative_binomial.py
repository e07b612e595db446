"""Negative binomial counts by their definitions: a gamma mixture, products and sums over counts."""

from __future__ import annotations

import numpy as np
from scipy import integrate, stats

MANY = 3000
"""Counts beyond this one have no chance worth adding."""


def chance(count: int, mean: float, dispersion: float) -> float:
    """P(y): the Poisson chance averaged over a gamma variable with mean 1 and variance α."""
    gamma = stats.gamma(1.0 / dispersion, scale=dispersion)

    def at(quantile: float) -> float:
        return float(stats.poisson.pmf(count, mean * gamma.ppf(quantile)))

    return float(integrate.quad(at, 0.0, 1.0, limit=400, epsabs=1e-12, epsrel=1e-10)[0])


def log_chance(count: int, mean: float, dispersion: float) -> float:
    """The same in closed form, as a product over the counts below y: no gamma function."""
    log = -np.log1p(dispersion * mean) / dispersion
    for below in range(count):
        log += np.log(1.0 + dispersion * below) + np.log(mean) - np.log1p(dispersion * mean)
        log -= np.log(below + 1.0)
    return float(log)


def scoring(count: int, predictor: float, dispersion: float) -> tuple[float, float]:
    """Score and Fisher information of η: a difference quotient, and the score's mean square over all y."""

    def slope(each: int) -> float:
        step = 1e-5
        ends = [log_chance(each, np.exp(predictor + move), dispersion) for move in (step, -step)]
        return (ends[0] - ends[1]) / (2.0 * step)

    information, left = 0.0, 1.0
    for each in range(MANY):
        share = np.exp(log_chance(each, np.exp(predictor), dispersion))
        information, left = information + share * slope(each) ** 2, left - share
        if left < 1e-9:
            break
    return slope(count), information


def posterior(
    outcome: np.ndarray, mean: np.ndarray, grid: np.ndarray, scale: float = 1.0
) -> tuple[float, float]:
    """Mean and sd of log α given counts with known means; √α is half-normal with this scale."""
    logs = []
    for log in grid:
        dispersion = np.exp(log)
        likelihood = sum(
            log_chance(int(y), float(mu), dispersion) for y, mu in zip(outcome, mean, strict=True)
        )
        # The density of √α, times the derivative of √α = exp(log α / 2).
        logs.append(likelihood + stats.halfnorm.logpdf(np.sqrt(dispersion), scale=scale) + 0.5 * log)
    weight = np.exp(np.array(logs) - np.max(logs))
    weight /= weight.sum()
    centre = float(weight @ grid)
    return centre, float(np.sqrt(weight @ (grid - centre) ** 2))
