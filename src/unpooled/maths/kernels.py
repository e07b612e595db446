"""Stationary kernels of a distance in length-scales, and distances without an n × n × d array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

Family = Literal["squared_exponential", "matern32", "matern52"]


def squared_distances(left: Float[Array, "n d"], right: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """|a − b|² = |a|² + |b|² − 2aᵀb, never below zero."""
    squares = jnp.sum(left**2, axis=1)[:, None] + jnp.sum(right**2, axis=1)[None, :]
    return jnp.maximum(squares - 2.0 * left @ right.T, 0.0)


def _root(squared: Array) -> Array:
    # The derivative of √ at zero is infinite; there the kernels below are flat, so it must read zero.
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


_CORRELATIONS: dict[str, Callable[[Array], Array]] = {
    "squared_exponential": _squared_exponential,
    "matern32": _matern32,
    "matern52": _matern52,
}


def correlation(family: Family, squared: Array) -> Array:
    """k(r²), one at r = 0, for squared distances measured in length-scales."""
    return _CORRELATIONS[family](squared)


_SLOPE_VARIANCES = {"squared_exponential": 1.0, "matern32": 3.0, "matern52": 5.0 / 3.0}


def slope_variance(family: Family) -> float:
    """−k''(0): the variance of a function's slope, per length-scale, where its own variance is one."""
    return _SLOPE_VARIANCES[family]


def kernel_matrix(family: Family, left: Array, right: Array, length: Array) -> Array:
    """k(x, x') with one length-scale, or one per column (ARD)."""
    return correlation(family, squared_distances(left / length, right / length))
