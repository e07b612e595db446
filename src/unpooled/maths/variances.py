"""Variances of normal terms, drawn given the terms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

PRIOR_TERMS = 4.0
"""How many terms of the expected size the prior of a variance is worth."""


def draw_variance(squares: Array, count: Array | float, expected: Array | float, key: Array) -> Array:
    """Of `count` normal terms whose squares sum to this: inverse gamma."""
    shape = 0.5 * (PRIOR_TERMS + count) * jnp.ones_like(squares)
    return 0.5 * (PRIOR_TERMS * jnp.asarray(expected) + squares) / jax.random.gamma(key, shape)
