"""2 × 2 covariances between the control and the treated arm, by their Cholesky factors."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def factor(parameters: Float[Array, "... 3"]) -> Float[Array, "... 2 2"]:
    """Ψ^½ from (log ψ*₁₁, ψ*₂₁, log ψ*₂₂)."""
    first, cross, second = parameters[..., 0], parameters[..., 1], parameters[..., 2]
    top = jnp.stack([jnp.exp(first), jnp.zeros_like(first)], axis=-1)
    return jnp.stack([top, jnp.stack([cross, jnp.exp(second)], axis=-1)], axis=-2)


def between(matrix: Float[Array, "2 2"], left: Array, right: Array) -> Array:
    """Ψ[w, w'] for every pair of rows, with treatments 0 or 1."""
    left_arm = jnp.stack([1.0 - left, left], axis=-1)
    right_arm = jnp.stack([1.0 - right, right], axis=-1)
    return left_arm @ matrix @ right_arm.T
