"""p(u | x) and p(w | x, u) given everybody completed: draws from sums, all of them linear regressions.

Of (1, x) and the levels before, a probit for every step towards a level; of (1, x) and all levels, the
numbers with a free covariance; of everything, the treatment's probit.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

from unpooled.maths.covariance import Wishart, draw_factors
from unpooled.maths.linear_algebra import back, forward, unpack
from unpooled.methods.causal_fi.columns import Layout
from unpooled.methods.causal_fi.levels import CURVE, allowed, asked_of_all
from unpooled.protocol.messages import Tree

LEAST_SPREAD = 0.1
"""What each number varies by, given x and the others, before anything is seen."""
FIXED = 1e8
"""Precision of a coefficient that is none."""


class Probit(NamedTuple):
    """Coefficients, and of the slopes among them the sum of squares and the number."""

    coefficients: Array
    squares: Array
    number: Array


def draw_numbers(gram: Float[Array, "p p"], size: int, key: Array) -> Tree:
    """Matrix-normal and inverse Wishart: (B, S) given the products of (1, x, levels) and of the numbers."""
    for_covariance, for_slopes = jax.random.split(key)
    count, width = gram[0, 0], gram.shape[0] - size
    if not width:
        return {
            "intercept": jnp.zeros(0),
            "slopes": jnp.zeros((size - 1, 0)),
            "covariance": jnp.zeros((0, 0)),
        }
    root = jnp.linalg.cholesky(gram[:size, :size] + jnp.eye(size))
    white = forward(root, gram[:size, size:])
    left = gram[size:, size:] - white.T @ white + LEAST_SPREAD * (width + 2) * jnp.eye(width)
    draws = draw_factors(Wishart(jnp.eye(width), width + 2 + count), for_covariance, 1)[0]
    spread = jnp.linalg.cholesky(left) @ jsl.solve_triangular(draws, jnp.eye(width), lower=True).T
    noise = jax.random.normal(for_slopes, white.shape) @ spread.T
    found = back(root, white + noise)
    return {"intercept": found[0], "slopes": found[1:], "covariance": spread @ spread.T}


def draw_steps(gram: Array, sums: Tree, spreads: Array, layout: Layout, key: Array) -> Probit:
    """Coefficients of the steps towards levels, each from its own products."""
    if not len(spreads):
        return Probit(sums["score"], spreads, spreads)
    first = len(gram) - len(layout.mean)
    given = layout.before_numbers(first)
    common = jnp.pad(gram[given][:, given], (0, CURVE))
    own, everybody = iter(unpack(sums["gram"])), asked_of_all(layout)
    products = jnp.stack([common if all_ else next(own) for all_ in everybody])
    free = jnp.asarray(allowed(layout, first - 1))
    keys = jax.random.split(key, len(spreads))
    return jax.vmap(draw_probit)(products, sums["score"], spreads, free, keys)


def draw_probit(gram: Array, score: Array, variance: Array, free: Array, key: Array) -> Probit:
    """Coefficients given the latents; not `free`: zero."""
    prior = jnp.where(free, 1.0 / variance, FIXED).at[0].set(0.1)
    root = jnp.linalg.cholesky(gram + jnp.diag(prior))
    white = forward(root, score) + jax.random.normal(key, score.shape)
    found = jnp.where(free, back(root, white), 0.0)
    return Probit(found, jnp.sum(found[1:] ** 2), jnp.sum(free) - 1.0)
