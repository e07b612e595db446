"""Stationary kernels, and the basis functions through which all sites share a Gaussian process.

With inducing inputs u and K_uu = LLᵀ, φ(x) = L⁻¹k(u, x) satisfies φ(x)ᵀφ(x') = q(x, x'), the part of
k(x, x') that u explains. A function is then a vector of weights on φ, standard normal a priori, which can
be estimated from sums over sites. The inputs are first mixed by cosine waves, so that a sum of φ rests on
many people (docs/decisions/0018).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float

Family = Literal["squared_exponential", "matern32", "matern52", "rational_quadratic"]


def squared_distances(left: Float[Array, "n d"], right: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """|a − b|² = |a|² + |b|² − 2aᵀb, clipped at zero; no n × m × d array is formed."""
    squares = jnp.sum(left**2, axis=1)[:, None] + jnp.sum(right**2, axis=1)[None, :]
    return jnp.maximum(squares - 2.0 * left @ right.T, 0.0)


def _root(squared: Array) -> Array:
    # √ has an infinite derivative at zero, where the kernels below are flat and their gradient must be zero.
    positive = squared > 1e-18
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squared, 1.0)), 0.0)


def _squared_exponential(squared: Array) -> Array:
    return jnp.exp(-0.5 * squared)


def _matern32(squared: Array) -> Array:
    scaled = jnp.sqrt(3.0) * _root(squared)
    return (1.0 + scaled) * jnp.exp(-scaled)


def _matern52(squared: Array) -> Array:
    scaled = jnp.sqrt(5.0) * _root(squared)
    return (1.0 + scaled + scaled**2 / 3.0) * jnp.exp(-scaled)


def _rational_quadratic(squared: Array) -> Array:
    # With the shape α = 1: a mixture of squared exponentials of all length-scales.
    return 1.0 / (1.0 + 0.5 * squared)


_CORRELATIONS: dict[str, Callable[[Array], Array]] = {
    "squared_exponential": _squared_exponential,
    "matern32": _matern32,
    "matern52": _matern52,
    "rational_quadratic": _rational_quadratic,
}


def correlation(family: Family, squared: Array) -> Array:
    """k(r²) with k(0) = 1, for squared distances in units of the length-scale."""
    return _CORRELATIONS[family](squared)


_SLOPE_VARIANCES = {
    "squared_exponential": 1.0,
    "matern32": 3.0,
    "matern52": 5.0 / 3.0,
    "rational_quadratic": 1.0,
}


def slope_variance(family: Family) -> float:
    """−k''(0): the variance of the slope per length-scale of a function with variance one."""
    return _SLOPE_VARIANCES[family]


def kernel_matrix(family: Family, left: Array, right: Array, length: Array) -> Array:
    """k(x, x') with one length-scale, or with one per column (ARD)."""
    return correlation(family, squared_distances(left / length, right / length))


JITTER = 1e-8
"""Added to the unit diagonal of K_uu, so that its Cholesky factor exists when inducing inputs are close."""


def waves(size: int) -> Float[np.ndarray, "m m"]:
    """The orthogonal matrix of the discrete cosine transform, slow waves first.

    >>> np.allclose(waves(5) @ waves(5).T, np.eye(5))
    True
    """
    order, place = np.arange(size)[:, None], (np.arange(size) + 0.5) / max(size, 1)
    return np.sqrt(np.where(order == 0, 1.0, 2.0) / max(size, 1)) * np.cos(np.pi * order * place)


def _whitening(inner: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """W with φ(x) = Wᵀk(u, x), from K_uu."""
    # Any orthogonal mixture of the inducing inputs gives the same q. Without one, many features are bumps
    # that only the people nearby contribute to; to a wave over all inputs most people contribute.
    mixture = jnp.asarray(waves(inner.shape[0]))
    mixed = mixture @ (inner + JITTER * jnp.eye(inner.shape[0])) @ mixture.T
    # L⁻¹ times the small mixture, then one product with all people: a solve for every person takes longer.
    return jsl.solve_triangular(jnp.linalg.cholesky(mixed), mixture, lower=True).T


def inducing_basis(family: Family, inducing: Array, length: Array) -> Float[Array, "m m"]:
    """What `inducing_features` of all people have in common."""
    return _whitening(kernel_matrix(family, inducing, inducing, length))


def inducing_features(
    family: Family, inputs: Array, inducing: Array, length: Array, basis: Array | None = None
) -> Float[Array, "n m"]:
    """φ(x) for inducing inputs in the space of the covariates."""
    basis = inducing_basis(family, inducing, length) if basis is None else basis
    return kernel_matrix(family, inducing, inputs, length).T @ basis


def line_basis(family: Family, grid: Array, length: Array) -> Float[Array, "m m"]:
    """What `line_features` of all people have in common."""
    return _whitening(correlation(family, ((grid[:, None] - grid[None, :]) / length) ** 2))


def line_features(
    family: Family, index: Float[Array, " n"], grid: Array, length: Array, basis: Array | None = None
) -> Float[Array, "n m"]:
    """φ(z) for a function of one variable z, with inducing inputs on a fixed grid."""
    basis = line_basis(family, grid, length) if basis is None else basis
    return correlation(family, ((grid[:, None] - index[None, :]) / length) ** 2).T @ basis
