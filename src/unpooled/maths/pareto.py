"""How heavy the tail of importance ratios is (Vehtari, Simpson, Gelman, Yao and Gabry 2024)."""

from __future__ import annotations

import numpy as np
from scipy.stats import genpareto

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
    shape, _, _ = genpareto.fit(np.maximum(beyond, 1e-300) / np.mean(beyond), floc=0.0)
    return float(shape)
