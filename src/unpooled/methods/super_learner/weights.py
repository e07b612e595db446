"""Weights of the candidates from sums of products, and how uncertain the stacked effect is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

NEGLIGIBLE = 0.02
"""Candidates with a smaller weight are dropped."""
NARROWEST, WIDEST = 0.5, 4.0
"""Range of the factor by which draws are stretched."""


class Stack(NamedTuple):
    """The weights of the candidates, the last of which is the constant effect."""

    share: np.ndarray
    constant: float
    error: float
    """The standard error of the constant effect."""
    loss: np.ndarray
    """The R-loss per person of every candidate alone, and of the stack."""


def stack(products: np.ndarray, people: float, simplicity: float) -> Stack:
    """Weights on the simplex that minimise the R-loss plus a price for effects that are not constant.

    `products` are those of (w − e)τ for each candidate, w − e, and y − m. The price is `simplicity` in units
    of the log likelihood, times the weight of all candidates but the constant effect.
    """
    count = len(products) - 2
    gram, score, total = products[:-1, :-1], products[:-1, -1], products[-1, -1]
    constant = score[-1] / gram[-1, -1]
    scale = np.append(np.ones(count), constant)
    gram, score = scale[:, None] * gram * scale, scale * score
    each = total - 2.0 * score + np.diag(gram)
    noise = max(float(each.min()), 1e-12 * float(total)) / people
    price = 2.0 * simplicity * noise * np.append(np.ones(count), 0.0)
    size = total if total > 0.0 else 1.0
    found = minimize(
        lambda v: (v @ gram @ v - 2.0 * v @ score + v @ price) / size,
        np.full(count + 1, 1.0 / (count + 1)),
        jac=lambda v: (2.0 * gram @ v - 2.0 * score + price) / size,
        bounds=[(0.0, 1.0)] * (count + 1),
        constraints={"type": "eq", "fun": lambda v: v.sum() - 1.0, "jac": lambda v: np.ones(count + 1)},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    share = np.where(found.x > NEGLIGIBLE, found.x, 0.0)
    share = share / share.sum()
    loss = np.append(each, total - 2.0 * share @ score + share @ gram @ share) / people
    error = float(np.sqrt(noise / products[-2, -2]))
    return Stack(share, float(constant), error, loss)


def stretch(leaves: np.ndarray, variance: np.ndarray) -> float:
    """By how much the stacked effect's draws must be stretched.

    Of people in the same leaf, products of residuals tell the squared error that they have in common: their
    noise is independent. The stacked effect of each was found with the help of the others, so that twice its
    variance is missing from the products.
    """
    missed, squares, weight, fourth = np.moveaxis(leaves, -1, 0)
    pairs = np.sum(weight**2 - fourth)
    predicted = variance[0] / variance[1]
    if pairs <= 0.0 or predicted <= 0.0:
        return 1.0
    common = np.sum(missed**2 - squares) / pairs
    return float(np.clip(np.sqrt(max(common + 2.0 * predicted, 0.0) / predicted), NARROWEST, WIDEST))
