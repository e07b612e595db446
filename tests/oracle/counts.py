"""Counts with a log link by their definitions: chances from SciPy, modes by a general-purpose optimiser."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import stats
from scipy.optimize import minimize


def log_chances(count: np.ndarray, predictor: np.ndarray, dispersion: np.ndarray | float) -> np.ndarray:
    """log p(y) of a negative binomial count with mean exp(η) and variance μ + αμ²."""
    size = 1.0 / np.asarray(dispersion)
    return stats.nbinom.logpmf(count, size, size / (size + np.exp(predictor)))


def mode(
    count: np.ndarray,
    design: np.ndarray,
    prior: np.ndarray,
    offset: float,
    unit: float,
    dispersion: np.ndarray,
) -> np.ndarray:
    """The most probable coefficients of η = offset + unit·Xβ with independent normal priors."""

    def misfit(beta: np.ndarray) -> tuple[float, np.ndarray]:
        predictor = offset + unit * design @ beta
        mean = np.exp(predictor)
        slope = unit * design.T @ ((count - mean) / (1.0 + dispersion * mean))
        value = log_chances(count, predictor, dispersion).sum() - 0.5 * np.sum(beta**2 / prior)
        return -float(value), beta / prior - slope

    start = np.zeros(design.shape[1])
    found = minimize(
        misfit, start, jac=True, method="L-BFGS-B", options={"maxiter": 10_000, "ftol": 0.0, "gtol": 1e-9}
    )
    return found.x


def laplace(
    count: np.ndarray, design: np.ndarray, prior: np.ndarray, offset: float, unit: float,
    dispersion: np.ndarray, beta: np.ndarray,
) -> float:  # fmt: skip
    """The log evidence by Laplace's approximation with Fisher's information, densely."""
    predictor = offset + unit * design @ beta
    mean = np.exp(predictor)
    weight = unit**2 * mean / (1.0 + dispersion * mean)
    precision = design.T @ (weight[:, None] * design) + np.diag(1.0 / prior)
    log = (
        log_chances(count, predictor, dispersion).sum() + stats.norm.logpdf(beta, scale=np.sqrt(prior)).sum()
    )
    return float(log + 0.5 * len(beta) * np.log(2.0 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1])


def cumulative(log_density: Callable[[np.ndarray], np.ndarray], grid: np.ndarray) -> np.ndarray:
    """The distribution function of a density on a grid."""
    logs = log_density(grid)
    density = np.exp(logs - logs.max())
    return np.cumsum(density) / density.sum()
