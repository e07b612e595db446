"""The normal distribution: conditionals given the observed entries, probits, and draws with exact moments."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jax.scipy.special import ndtri as normal_quantile
from jaxtyping import Array, Float, Int
from scipy.special import ndtri


class ConditionalNormal(NamedTuple):
    """The distribution of each row's missing entries given its observed ones; zero in all other positions."""

    regression: Float[Array, "n q q"]
    """E[missing − mean | observed] = regression @ (observed − mean)."""
    root: Float[Array, "n q q"]
    """A lower triangular factor of the conditional covariance."""
    precision: Float[Array, "n q q"]
    """The inverse covariance of the observed entries."""


def given_observed(covariance: Float[Array, "q q"], seen: Float[Array, "n q"]) -> ConditionalNormal:
    """The conditional distribution for every row, by the sweep operator; `seen` is 1 for observed entries.

    All rows are swept at once, pivot by pivot: there is no factorisation per row or per missing pattern.
    """
    if not len(covariance):
        return ConditionalNormal(*jnp.zeros((3, len(seen), 0, 0)))
    missing = 1.0 - seen
    swept = _sweep(jnp.broadcast_to(covariance, (len(seen), *covariance.shape)), seen)
    left = swept * missing[:, :, None] * missing[:, None, :]
    precision = -swept * seen[:, :, None] * seen[:, None, :]
    return ConditionalNormal(swept * missing[:, :, None] * seen[:, None, :], _root(left, missing), precision)


def solve(matrix: Float[Array, "n k k"], right: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """matrix⁻¹ right for a stack of small positive definite matrices."""
    return -jnp.einsum("nij,nj->ni", _sweep(matrix, jnp.ones(right.shape)), right)


def _sweep(matrix: Float[Array, "n q q"], pivots: Float[Array, "n q"]) -> Float[Array, "n q q"]:
    """Sweep on every pivot in turn; the (missing, observed) block then holds S_mo S_oo⁻¹."""

    def on(k: int, now: Array) -> Array:
        column, size = now[:, :, k], now[:, k, k][:, None]
        scaled = column / size
        done = now - scaled[:, :, None] * column[:, None, :]
        done = done.at[:, :, k].set(scaled).at[:, k, :].set(scaled).at[:, k, k].set(-1.0 / size[:, 0])
        return jnp.where(pivots[:, k, None, None] > 0.0, done, now)

    return jax.lax.fori_loop(0, matrix.shape[1], on, matrix)


def _root(matrix: Float[Array, "n q q"], missing: Float[Array, "n q"]) -> Float[Array, "n q q"]:
    """The Cholesky factor of the block of missing entries, column by column."""

    def on(k: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        left, root = state
        size = jnp.where(missing[:, k] > 0.0, jnp.maximum(left[:, k, k], 1e-12), 1.0)
        below = (jnp.arange(left.shape[1]) >= k) * missing[:, k, None]
        column = below * left[:, :, k] / jnp.sqrt(size)[:, None]
        return left - column[:, :, None] * column[:, None, :], root.at[:, :, k].set(column)

    return jax.lax.fori_loop(0, matrix.shape[1], on, (matrix, jnp.zeros_like(matrix)))[1]


def log_probit(at: Array) -> Array:
    """log Φ, continued as a straight line below −37, where Φ underflows."""
    return jnp.log(0.5 * jax.lax.erfc(-jnp.maximum(at, -37.0) * np.sqrt(0.5))) + jnp.minimum(at + 37.0, 0.0)


def latent(mean: Array, sd: Array, yes: Array, uniform: Array) -> Array:
    """The latent normal variable of a probit model, positive where `yes` and negative elsewhere, drawn by
    inversion of a uniform number."""
    sign = jnp.where(yes, 1.0, -1.0)
    return mean - sign * sd * normal_quantile(uniform * ndtr(jnp.maximum(sign * mean / sd, -37.0)))


def uniforms(key: Array, *shape: int) -> Array:
    """Uniform numbers greater than 0, whose normal quantiles are finite.

    A program should ask for all of its random numbers in one call, since the generator alone takes hundreds
    of operations to compile.
    """
    return jax.random.uniform(key, shape, minval=1e-16)


def choose(weights: Float[Array, "k n"], uniform: Float[Array, " n"]) -> Int[Array, " n"]:
    """For every column an index drawn with these weights, by inversion of a uniform number.

    >>> choose(jnp.array([[1.0, 1.0], [3.0, 1.0]]), jnp.array([0.3, 0.3])).tolist()
    [1, 0]
    """
    reached = np.tri(len(weights)) @ weights
    return jnp.sum(reached[:-1] < uniform * reached[-1], axis=0)


TRIED = 160_000
"""Size of the search in `independent_normals`: each column tries TRIED / count permutations by default."""


def normal_quantiles(count: int) -> np.ndarray:
    """Equally likely quantiles of a standard normal, scaled to mean 0 and variance 1.

    >>> values = normal_quantiles(5)
    >>> values.round(2).tolist(), float(values.var().round(12))
    ([-1.46, -0.6, 0.0, 0.6, 1.46], 1.0)
    """
    values = ndtri((np.arange(count) + 0.5) / count)
    return values / values.std()


def independent_normals(
    count: int, sd: np.ndarray, rng: np.random.Generator, tried: int = TRIED
) -> np.ndarray:
    """Draws [count, m] of independent normals with these sds, whose sample moments are exact.

    Every column holds the same quantiles in its own order. Random orders would correlate columns by about
    1/√count, which would show in an average over few sites. Each column therefore takes the best of several
    random orders: the one whose sum with the previous columns is closest to a normal distribution.
    """
    tried = max(tried // count, 1)
    quantiles, found, so_far = normal_quantiles(count), np.zeros((count, len(sd))), np.zeros(count)
    for column, size in enumerate(np.sqrt(np.cumsum(sd**2))):
        orders = sd[column] * rng.permuted(np.tile(quantiles, (tried, 1)), axis=1)
        apart = np.sort(so_far + orders, axis=1) - size * quantiles
        found[:, column] = orders[np.argmin(np.sum(apart**2, axis=1))]
        so_far += found[:, column]
    return found
