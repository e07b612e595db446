"""Basis functions that carry one Gaussian-process function to every site.

With inducing inputs u and K_uu = LLᵀ, φ(x) = L⁻¹k(u, x) satisfies φ(x)ᵀφ(x') = q(x, x'), the part of
k(x, x') that u explains. Weights on φ are standard normal a priori, so everybody's data meet in them.
"""

from __future__ import annotations

import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

from unpooled.maths.kernels import Family, correlation, kernel_matrix

JITTER = 1e-8
"""Added to the diagonal of K_uu (unit diagonal), so that close inducing inputs do not break Cholesky."""


def _whiten(inner: Float[Array, "m m"], cross: Float[Array, "m n"]) -> Float[Array, "n m"]:
    factor = jnp.linalg.cholesky(inner + JITTER * jnp.eye(inner.shape[0]))
    return jsl.solve_triangular(factor, cross, lower=True).T


def inducing_features(family: Family, inputs: Array, inducing: Array, length: Array) -> Float[Array, "n m"]:
    """φ(x) for inducing inputs in the space of the covariates."""
    inner = kernel_matrix(family, inducing, inducing, length)
    return _whiten(inner, kernel_matrix(family, inducing, inputs, length))


def line_features(
    family: Family, index: Float[Array, " n"], grid: Array, length: Array
) -> Float[Array, "n m"]:
    """φ(z) for a function of one number z, on a fixed grid."""
    inner = correlation(family, ((grid[:, None] - grid[None, :]) / length) ** 2)
    return _whiten(inner, correlation(family, ((grid[:, None] - index[None, :]) / length) ** 2))
