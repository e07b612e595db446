"""Covariance matrices by their Cholesky factors: between the two arms, and Wishart distributed."""

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
    """V = [[ν₁², ρν₁ν₂], [·, ν₂²]] with ν_i = sd_i/√d, so that the diagonal of E[Ψ] is sd² for every d."""
    cross, rest = correlation * sd[1], jnp.sqrt(1.0 - correlation**2) * sd[1]
    root = jnp.stack([jnp.stack([sd[0], jnp.zeros_like(cross)]), jnp.stack([cross, rest])])
    return Wishart(root / jnp.sqrt(degrees), degrees)


def draw_factors(wishart: Wishart, key: Array, count: int) -> Float[Array, "count p p"]:
    """Draws of the Cholesky factor Ψ^½ = V^½A, with AAᵀ ~ Wishart(I, d) by Bartlett's decomposition."""
    size = wishart.factor.shape[0]
    squares, below = jax.random.split(key)
    # χ² with d − i degrees of freedom; JAX can differentiate gamma draws with respect to their shape.
    shapes = 0.5 * (wishart.degrees - jnp.arange(size))
    diagonal = jnp.sqrt(2.0 * jax.random.gamma(squares, shapes, (count, size)))
    lower = jnp.tril(jax.random.normal(below, (count, size, size)), -1)
    return wishart.factor @ (lower + diagonal[:, :, None] * jnp.eye(size))


def divergence(q: Wishart, p: Wishart) -> Float[Array, ""]:
    """KL(q‖p), the divergence between two Wishart distributions.

    ½(d_p log|V_p|/|V_q| + d_q(tr V_p⁻¹V_q − k) + (d_q − d_p)ψ_k(d_q/2)) + log Γ_k(d_p/2)/Γ_k(d_q/2).
    """
    size = q.factor.shape[0]
    ratio = jsl.solve_triangular(p.factor, q.factor, lower=True)
    scales = p.degrees * (_log_determinant(p) - _log_determinant(q)) + q.degrees * (jnp.sum(ratio**2) - size)
    halves = 0.5 * jnp.arange(size)
    gammas = jnp.sum(gammaln(0.5 * p.degrees - halves) - gammaln(0.5 * q.degrees - halves))
    return 0.5 * (scales + (q.degrees - p.degrees) * jnp.sum(digamma(0.5 * q.degrees - halves))) + gammas


def _log_determinant(wishart: Wishart) -> Array:
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(wishart.factor)))


def arm_factor(parameters: Float[Array, "... 3"]) -> Float[Array, "... 2 2"]:
    """Ψ^½, the factor of the covariance between the arms, from (log ψ*₁₁, ψ*₂₁, log ψ*₂₂)."""
    first, cross, second = parameters[..., 0], parameters[..., 1], parameters[..., 2]
    top = jnp.stack([jnp.exp(first), jnp.zeros_like(first)], axis=-1)
    return jnp.stack([top, jnp.stack([cross, jnp.exp(second)], axis=-1)], axis=-2)


def effect_factor(parameters: Float[Array, "... 3"]) -> Float[Array, "... 2 2"]:
    """Ψ^½ of f_w = m + (w − ½)τ, a prognostic function and an effect, from (log s_m, c, log s_τ).

    m has the scale s_m; τ has s_τ√(1 + c²) and a correlation with m that only depends on c. An effect is
    usually smaller than the outcome, which a prior of s_τ can express and one of the arms' scales cannot.
    """
    prognostic, cross, effect = parameters[..., 0], parameters[..., 1], parameters[..., 2]
    factor = arm_factor(jnp.stack([prognostic, cross * jnp.exp(effect), effect], axis=-1))
    return jnp.array([[1.0, -0.5], [1.0, 0.5]]) @ factor


def between_arms(matrix: Float[Array, "2 2"], left: Array, right: Array) -> Array:
    """Ψ[w, w'] for every pair of rows, whose treatments are 0 or 1."""
    left_arm = jnp.stack([1.0 - left, left], axis=-1)
    right_arm = jnp.stack([1.0 - right, right], axis=-1)
    return left_arm @ matrix @ right_arm.T
