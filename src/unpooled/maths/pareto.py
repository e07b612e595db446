"""How heavy the tail of importance ratios is (Vehtari, Simpson, Gelman, Yao and Gabry 2024).

The shape is estimated as they do, by the quasi-Bayesian method of Zhang and Stephens (Technometrics 2009).
The likelihood of a generalised Pareto distribution has one parameter b left once the shape is profiled out; b
is averaged over a grid, with weights proportional to the likelihood.
"""

from __future__ import annotations

import numpy as np

FEWEST = 25
"""Fewest ratios from which the shape of the tail is estimated."""


def pareto_shape(log_ratios: np.ndarray) -> float:
    """k̂, the shape of a generalised Pareto distribution fitted to the largest ratios; NaN if there are few.

    Draws from an approximation represent a posterior well if k̂ of its log density minus theirs is below 0.7.
    """
    count = len(log_ratios)
    if count < FEWEST:
        return float("nan")
    tail = int(np.ceil(min(0.2 * count, 3.0 * np.sqrt(count))))
    ordered = np.exp(np.sort(log_ratios) - np.max(log_ratios))
    beyond = ordered[-tail:] - ordered[-tail - 1]
    return float(generalised_pareto_shape(np.maximum(beyond, 1e-300) / np.mean(beyond)))


def generalised_pareto_shape(ordered: np.ndarray) -> float:
    """The shape of the generalised Pareto distribution of a sorted sample of positive numbers."""
    count = len(ordered)
    points = np.arange(1, 31 + int(np.sqrt(count)))
    quartile = ordered[int(count / 4 + 0.5) - 1]
    b = 1.0 / ordered[-1] + (1.0 - np.sqrt(len(points) / (points - 0.5))) / (3.0 * quartile)

    def shape(b: np.ndarray) -> np.ndarray:
        return np.mean(np.log1p(-b[:, None] * ordered), axis=1)

    log_likelihood = count * (np.log(-b / shape(b)) - shape(b) - 1.0)
    weight = np.exp(log_likelihood - log_likelihood.max())
    return shape(np.array([weight @ b / weight.sum()]))[0]
