"""Draws of independent normals that show their moments exactly: the same quantiles in every column."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

TRIED = 160_000
"""Numbers put in order for each column: as many orders as they make, of which the best is taken."""


def normal_quantiles(count: int) -> np.ndarray:
    """Equally likely values of a standard normal, their mean 0 and their variance 1.

    >>> values = normal_quantiles(5)
    >>> values.round(2).tolist(), float(values.var().round(12))
    ([-1.46, -0.6, 0.0, 0.6, 1.46], 1.0)
    """
    values = ndtri((np.arange(count) + 0.5) / count)
    return values / values.std()


def independent_normals(count: int, sd: np.ndarray, seed: list[int]) -> np.ndarray:
    """Columns [count, m] of these sds, each in an order of its own, so that their sums are normal as well.

    In plainly random orders, columns are correlated by 1/√count or so, which would be seen in an average over
    few sites. So each order is the best of several: that whose sum with the columns so far is most nearly
    normal, with the variances' sum for its variance.
    """
    rng, tried = np.random.default_rng(seed), max(TRIED // count, 1)
    quantiles, found, so_far = normal_quantiles(count), np.zeros((count, len(sd))), np.zeros(count)
    for column, size in enumerate(np.sqrt(np.cumsum(sd**2))):
        orders = sd[column] * rng.permuted(np.tile(quantiles, (tried, 1)), axis=1)
        apart = np.sort(so_far + orders, axis=1) - size * quantiles
        found[:, column] = orders[np.argmin(np.sum(apart**2, axis=1))]
        so_far += found[:, column]
    return found
