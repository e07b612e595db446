"""Imputation by a few components: probabilistic PCA, and PCA that is fitted and filled in turn.

Both work like scikit-learn's imputers. Columns are standardised by their observed values, and the number of
components is the one that best predicts a tenth of the observed values, which are hidden for this purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

Reconstruct = Callable[[np.ndarray], np.ndarray]
"""standardised rows with NaN → the expected values of all their entries."""
Fit = Callable[[np.ndarray, int], Reconstruct]
"""(standardised rows with NaN, number of components) → a reconstruction."""
MOST_COMPONENTS, HIDDEN = 8, 0.1
STEPS, TOLERANCE = 200, 1e-4
LEAST_NOISE = 1e-6


class LowRankImputer:
    """Replace missing values by their expectation given the observed ones in a model of few components."""

    def __init__(self, fit: Fit, seed: int) -> None:
        self._fit, self._seed = fit, seed
        self._mean, self._sd = np.zeros(0), np.zeros(0)
        self._reconstruct: Reconstruct = np.nan_to_num
        self.components = 0

    def fit(self, table: np.ndarray) -> LowRankImputer:
        seen = ~np.isnan(table)
        counts = np.maximum(seen.sum(axis=0), 1)
        self._mean = np.where(seen, table, 0.0).sum(axis=0) / counts
        spread = np.sqrt(np.where(seen, (table - self._mean) ** 2, 0.0).sum(axis=0) / counts)
        self._sd = np.where(spread > 0.0, spread, 1.0)
        scaled = (table - self._mean) / self._sd
        self.components = self._chosen(scaled, seen)
        self._reconstruct = self._fit(scaled, self.components)
        return self

    def transform(self, table: np.ndarray) -> np.ndarray:
        scaled = (table - self._mean) / self._sd
        return np.where(np.isnan(table), self._mean + self._sd * self._reconstruct(scaled), table)

    def _chosen(self, scaled: np.ndarray, seen: np.ndarray) -> int:
        incomplete = ~seen.all(axis=0)
        hidden = seen & incomplete & (np.random.default_rng(self._seed).random(seen.shape) < HIDDEN)
        most = min(MOST_COMPONENTS, scaled.shape[1] - 1)
        if not hidden.any() or most < 2:
            return max(most, 1)
        shown = np.where(hidden, np.nan, scaled)
        errors = [
            np.mean((self._fit(shown, count)(shown) - scaled)[hidden] ** 2) for count in range(1, most + 1)
        ]
        return 1 + int(np.argmin(errors))


def probabilistic_pca(scaled: np.ndarray, components: int) -> Reconstruct:
    """Tipping & Bishop (1999) by EM: x = Wz + noise, z ~ N(0, I), from each row's observed entries."""
    seen = ~np.isnan(scaled)
    filled = np.where(seen, scaled, 0.0)
    weights, noise = _start(filled, components)
    change, steps = np.inf, 0
    while change > TOLERANCE and steps < STEPS:
        mean, spread = _latent(filled, seen, weights, noise)
        second = mean[:, :, None] * mean[:, None, :] + spread
        # Each column's regression on z, over the rows in which it is observed.
        inner = np.einsum("nd,nij->dij", seen, second) + LEAST_NOISE * np.eye(components)
        new = np.linalg.solve(inner, (filled.T @ mean)[:, :, None])[:, :, 0]
        fitted = np.einsum("di,nij,dj->nd", new, second, new, optimize=True)
        residual = filled**2 - 2.0 * filled * (mean @ new.T) + fitted
        noise = max(float(residual[seen].mean()), LEAST_NOISE)
        change, weights, steps = float(np.abs(new - weights).max()), new, steps + 1
    return partial(_expected, weights, noise)


def _latent(
    filled: np.ndarray, seen: np.ndarray, weights: np.ndarray, noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mean [n, q] and covariance [n, q, q] of z given the observed entries of each row."""
    precision = np.einsum("nd,di,dj->nij", seen, weights, weights, optimize=True) / noise
    precision += np.eye(weights.shape[1])
    identity = np.broadcast_to(np.eye(weights.shape[1]), precision.shape)
    spread = np.linalg.solve(precision, identity)
    return np.einsum("nij,nj->ni", spread, filled @ weights) / noise, spread


def _expected(weights: np.ndarray, noise: float, scaled: np.ndarray) -> np.ndarray:
    seen = ~np.isnan(scaled)
    mean, _ = _latent(np.where(seen, scaled, 0.0), seen, weights, noise)
    return mean @ weights.T


def iterated_pca(scaled: np.ndarray, components: int) -> Reconstruct:
    """Fill with means, then in turn take the leading components and fill with what they reconstruct."""
    _, axes = _refilled(scaled, partial(_leading, components=components))
    return lambda rows: _refilled(rows, lambda _: axes)[0]


def _refilled(rows: np.ndarray, axes_of: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The reconstruction [n, d] and its axes [d, q] when the filled values no longer change."""
    seen = ~np.isnan(rows)
    filled, steps = np.where(seen, rows, 0.0), 0
    while True:
        axes = axes_of(filled)
        rebuilt = filled @ axes @ axes.T
        new = np.where(seen, rows, rebuilt)
        change, filled, steps = float(np.abs(new - filled).max()), new, steps + 1
        if change < TOLERANCE or steps == STEPS:
            return rebuilt, axes


def _leading(filled: np.ndarray, components: int) -> np.ndarray:
    """The leading right singular vectors [d, q]."""
    return np.linalg.svd(filled, full_matrices=False)[2][:components].T


def _start(filled: np.ndarray, components: int) -> tuple[np.ndarray, float]:
    _, values, axes = np.linalg.svd(filled, full_matrices=False)
    scale = values[:components] / np.sqrt(len(filled))
    left = float(np.sum(values[components:] ** 2) / filled.size)
    return axes[:components].T * scale, max(left, 0.01)
