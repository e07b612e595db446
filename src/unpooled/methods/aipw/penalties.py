"""Ridge penalties of the nuisance regressions, chosen by held-out fit from sums that are known already.

A regression is b = (G + Λ)⁻¹s with a Gram matrix G and a vector s. For the outcome, s = Xᵀy, and the squared
error of b is Σy² − 2(sᵀb − ½bᵀGb). For the treatment, the log likelihood to second order about a point β is
sᵀb − ½bᵀGb plus a constant, with G its curvature and s = slope + Gβ. So for both, sᵀb − ½bᵀGb is the fit of
b, and the sums of a fold are those of everybody less those without it: the held-out fit of every penalty
takes no further question. Choosing a penalty for the quadratic about each Newton step in turn is the
performance-oriented iteration of Gu (1992). No θ is asked for each penalty, so the grid reveals nothing.
"""

from __future__ import annotations

import numpy as np

GRID = np.geomspace(0.3, 1000.0, 8)
"""The penalties to choose from, in standard units."""
SITE_INTERCEPTS = 1.0
"""Penalty on the differences between sites' intercepts. A chosen penalty would shrink these too, and with
them the adjustment for the site."""


def diagonal(ridge: np.ndarray, width: int, size: int) -> np.ndarray:
    """Λ [..., size] for penalties [...]: 0 for the intercept, the penalty for the covariates, then the sites.

    >>> diagonal(np.array(5.0), width=3, size=5).tolist()
    [0.0, 5.0, 5.0, 1.0, 1.0]
    """
    place = np.arange(size)
    of_slopes = np.where(place < width, np.asarray(ridge)[..., None], SITE_INTERCEPTS)
    return np.where(place == 0, 0.0, of_slopes)


def solve(gram: np.ndarray, score: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """(G + Λ)⁻¹s along the leading axes."""
    return np.linalg.solve(gram + _matrix(weight), score[..., None])[..., 0]


def fit_of(solution: np.ndarray, gram: np.ndarray, score: np.ndarray) -> np.ndarray:
    """sᵀb − ½bᵀGb."""
    return np.sum(solution * (score - 0.5 * np.einsum("...fg,...g->...f", gram, solution)), axis=-1)


def used_degrees(gram: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Effective degrees of freedom, tr (G + Λ)⁻¹G."""
    return np.trace(np.linalg.solve(gram + _matrix(weight), gram), axis1=-2, axis2=-1)


def held_out_penalty(gram: np.ndarray, score: np.ndarray, width: int) -> np.ndarray:
    """The penalty with the best fit to held-out folds, for sums [batch, ..., f, f] and [batch, ..., f].

    The last of the batch are the sums of everybody, the others those without a fold.
    """
    weight = _weights(score[:-1], width)
    solution = solve(gram[None, :-1], score[None, :-1], weight)
    return _best(-fit_of(solution, gram[-1] - gram[:-1], score[-1] - score[:-1]).sum(axis=1))


def gcv_penalty(
    gram: np.ndarray, score: np.ndarray, square: np.ndarray, people: np.ndarray, width: int
) -> np.ndarray:
    """The penalty with the lowest generalised cross-validation error, n·SSE/(n − degrees)²."""
    weight = _weights(score, width)
    squares = np.maximum(square - 2.0 * fit_of(solve(gram[None], score[None], weight), gram, score), 0.0)
    left = np.maximum(people - used_degrees(gram[None], weight), 1e-6)
    return _best(people * squares / left**2)


def aic_penalty(gram: np.ndarray, score: np.ndarray, width: int) -> np.ndarray:
    """The penalty with the lowest AIC, −2·fit + 2·degrees."""
    weight = _weights(score, width)
    fit = fit_of(solve(gram[None], score[None], weight), gram, score)
    return _best(2.0 * (used_degrees(gram[None], weight) - fit))


def _weights(score: np.ndarray, width: int) -> np.ndarray:
    """Λ for every penalty of the grid, [penalty, 1, …, f] to go with sums of the shape of `score`."""
    return diagonal(GRID.reshape(-1, *[1] * (score.ndim - 1)), width, score.shape[-1])


def _best(loss: np.ndarray) -> np.ndarray:
    return GRID[np.argmin(np.where(np.isfinite(loss), loss, np.inf), axis=0)]


def _matrix(weight: np.ndarray) -> np.ndarray:
    return weight[..., None] * np.eye(weight.shape[-1])
