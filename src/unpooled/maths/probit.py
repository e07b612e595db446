"""Probits: P(yes) = Φ(η), and the latent η + noise whose sign says yes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def log_probit(at: Array) -> Array:
    """log Φ; far out in the tail it goes on as a line, where nobody is."""
    return jnp.log(0.5 * jax.lax.erfc(-jnp.maximum(at, -37.0) * np.sqrt(0.5))) + jnp.minimum(at + 37.0, 0.0)


def latent(mean: Array, sd: Array, yes: Array, key: Array) -> Array:
    """A normal number that is positive where the answer is yes, and negative where it is no."""
    lower, upper = jnp.where(yes, 0.0, -jnp.inf), jnp.where(yes, jnp.inf, 0.0)
    return mean + sd * jax.random.truncated_normal(key, (lower - mean) / sd, (upper - mean) / sd)
