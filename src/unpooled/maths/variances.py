"""Variances of normal terms, drawn given the terms."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

PRIOR_TERMS = 4.0
"""How many terms of the expected size the prior of a variance is worth."""


class Terms(NamedTuple):
    """So many normal terms whose squares sum to this, and the variance expected before."""

    squares: Array
    number: Array | float
    expected: Array | float


def draw_variances(terms: dict[str, Terms], key: Array) -> dict[str, Array]:
    """Inverse gamma, all in one call: each one costs a second to compile.

    >>> known = {"noise": Terms(jnp.array([2e6, 5e5]), 1e6, 1.0)}
    >>> draw_variances(known, jax.random.key(1))["noise"].round(1).tolist()
    [2.0, 0.5]
    """
    squares = {name: one.squares for name, one in terms.items()}
    flat, unravel = ravel_pytree(squares)
    number, expected = (
        ravel_pytree({name: jnp.broadcast_to(one[part], one.squares.shape) for name, one in terms.items()})[0]
        for part in (1, 2)
    )
    gamma = jax.random.gamma(key, 0.5 * (PRIOR_TERMS + number))
    return unravel(0.5 * (PRIOR_TERMS * expected + flat) / gamma)
