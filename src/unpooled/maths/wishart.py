"""Wishart distributions by Cholesky factors: reparameterised draws, and divergences in closed form."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float


class Wishart(eqx.Module):
    """Wishart(V, d) with V = LLᵀ; d > p − 1."""

    factor: Float[Array, "p p"]
    degrees: Float[Array, ""]

    @property
    def mean(self) -> Float[Array, "p p"]:
        """E[Ψ] = dV."""
        return self.degrees * self.factor @ self.factor.T


def two_arm_wishart(sd: Array, correlation: Array, degrees: Array) -> Wishart:
    """V = [[ν₁², ρν₁ν₂], [·, ν₂²]] with ν_i = sd_i/√d: sd² is E[Ψ]'s diagonal, whatever d is."""
    cross, rest = correlation * sd[1], jnp.sqrt(1.0 - correlation**2) * sd[1]
    root = jnp.stack([jnp.stack([sd[0], jnp.zeros_like(cross)]), jnp.stack([cross, rest])])
    return Wishart(root / jnp.sqrt(degrees), degrees)


def draw_factors(wishart: Wishart, key: Array, count: int) -> Float[Array, "count p p"]:
    """Ψ^½ = V^½A, with AAᵀ = ζ ~ Wishart(I, d) by Bartlett: lower triangular, so Ψ's Cholesky factor."""
    size = wishart.factor.shape[0]
    squares, below = jax.random.split(key)
    # χ² with d − i degrees of freedom; jax differentiates gamma draws with respect to their shape.
    shapes = 0.5 * (wishart.degrees - jnp.arange(size))
    diagonal = jnp.sqrt(2.0 * jax.random.gamma(squares, shapes, (count, size)))
    lower = jnp.tril(jax.random.normal(below, (count, size, size)), -1)
    return wishart.factor @ (lower + diagonal[:, :, None] * jnp.eye(size))


def divergence(q: Wishart, p: Wishart) -> Float[Array, ""]:
    """½(d_p log|V_p|/|V_q| + d_q(tr V_p⁻¹V_q − k) + (d_q − d_p)ψ_k(d_q/2)) + log Γ_k(d_p/2)/Γ_k(d_q/2)."""
    size = q.factor.shape[0]
    ratio = jsl.solve_triangular(p.factor, q.factor, lower=True)
    scales = p.degrees * (_log_determinant(p) - _log_determinant(q)) + q.degrees * (jnp.sum(ratio**2) - size)
    halves = 0.5 * jnp.arange(size)
    gammas = jnp.sum(gammaln(0.5 * p.degrees - halves) - gammaln(0.5 * q.degrees - halves))
    return 0.5 * (scales + (q.degrees - p.degrees) * jnp.sum(digamma(0.5 * q.degrees - halves))) + gammas


def _log_determinant(wishart: Wishart) -> Array:
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(wishart.factor)))
