"""A multivariate normal given some of its entries, which ones being different for every row.

By the sweep operator, pivot after pivot for all rows at once: no factorisation per row or per pattern.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Given(NamedTuple):
    """How a row's missing entries follow from those seen; zero in all other places."""

    regression: Float[Array, "n q q"]
    """E[missing − mean | seen] = regression @ (seen − mean)."""
    root: Float[Array, "n q q"]
    """A lower triangular factor of the covariance that is left."""
    precision: Float[Array, "n q q"]
    """The inverse covariance of the entries that are seen."""


def given_seen(covariance: Float[Array, "q q"], seen: Float[Array, "n q"]) -> Given:
    """For every row; `seen` is 1 where an entry is known."""
    if not len(covariance):
        return Given(*jnp.zeros((3, len(seen), 0, 0)))
    hole = 1.0 - seen
    swept = _sweep(jnp.broadcast_to(covariance, (len(seen), *covariance.shape)), seen)
    left = swept * hole[:, :, None] * hole[:, None, :]
    precision = -swept * seen[:, :, None] * seen[:, None, :]
    return Given(swept * hole[:, :, None] * seen[:, None, :], _root(left, hole), precision)


def solve(matrix: Float[Array, "n k k"], right: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """matrix⁻¹ right of many small positive definite matrices."""
    return -jnp.einsum("nij,nj->ni", _sweep(matrix, jnp.ones(right.shape)), right)


def _sweep(matrix: Float[Array, "n q q"], pivots: Float[Array, "n q"]) -> Float[Array, "n q q"]:
    """Regress on every pivot in turn: what stands at (missing, seen) is then S_ms S_ss⁻¹."""

    def on(k: int, now: Array) -> Array:
        column, size = now[:, :, k], now[:, k, k][:, None]
        scaled = column / size
        done = now - scaled[:, :, None] * column[:, None, :]
        done = done.at[:, :, k].set(scaled).at[:, k, :].set(scaled).at[:, k, k].set(-1.0 / size[:, 0])
        return jnp.where(pivots[:, k, None, None] > 0.0, done, now)

    return jax.lax.fori_loop(0, matrix.shape[1], on, matrix)


def _root(matrix: Float[Array, "n q q"], hole: Float[Array, "n q"]) -> Float[Array, "n q q"]:
    """Cholesky's factor of the block of the holes, column after column."""

    def on(k: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        left, root = state
        size = jnp.where(hole[:, k] > 0.0, jnp.maximum(left[:, k, k], 1e-12), 1.0)
        below = (jnp.arange(left.shape[1]) >= k) * hole[:, k, None]
        column = below * left[:, :, k] / jnp.sqrt(size)[:, None]
        return left - column[:, :, None] * column[:, None, :], root.at[:, :, k].set(column)

    return jax.lax.fori_loop(0, matrix.shape[1], on, (matrix, jnp.zeros_like(matrix)))[1]
