"""Coefficients of the sites that go together in any way: (θ_1, …, θ_m) ~ N(0, AAᵀ ⊗ diag(v)), solved exactly.

θ_s = diag(√v) Σ_k A_sk η_k with every η_k standard normal, so neither A nor v need be invertible. The system
is of the size of all η together, and dense: the price over partial pooling, which is linear in the sites.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.maths.borrowed_strength import orthonormal, shares
from unpooled.maths.partially_pooled import back, forward, log_diagonal


class Sums(eqx.Module):
    """What the rows of each site leave, in units of the noise."""

    gram: Float[Array, "m p p"]
    score: Float[Array, "m p"]


class Prior(eqx.Module):
    """A, a factor of the covariance between sites; and the variance of each coefficient."""

    between: Float[Array, "m k"]
    variances: Float[Array, " p"]


class Posterior(eqx.Module):
    """The stacked η. `log_evidence` lacks what depends on the noise and y alone."""

    log_evidence: Float[Array, ""]
    root: Float[Array, "kp kp"]
    white: Float[Array, " kp"]


def posterior(sums: Sums, prior: Prior) -> Posterior:
    """The exact posterior and log marginal likelihood."""
    between, scale = prior.between, jnp.sqrt(prior.variances)
    gram = scale[:, None] * sums.gram * scale
    seen = jnp.einsum("sk,sl,sij->kilj", between, between, gram)
    size = between.shape[1] * len(scale)
    root = jnp.linalg.cholesky(seen.reshape(size, size) + jnp.eye(size))
    white = forward(root, (between.T @ (sums.score * scale)).reshape(-1))
    return Posterior(0.5 * white @ white - log_diagonal(root), root, white)


def coefficients(fitted: Posterior, prior: Prior, key: Array | None = None) -> Float[Array, "m p"]:
    """One draw of every θ_s, or their mean without a key."""
    noise = 0.0 if key is None else jax.random.normal(key, fitted.white.shape)
    eta = back(fitted.root, fitted.white + noise).reshape(prior.between.shape[1], -1)
    return prior.between @ eta * jnp.sqrt(prior.variances)


def borrowed(sums: Sums, prior: Prior) -> Float[Array, "m m"]:
    """The borrowed shares of `unpooled.maths.borrowed_strength`, over all coefficients."""
    root, scale = posterior(sums, prior).root, jnp.sqrt(prior.variances)
    units = orthonormal(sums.gram.sum(axis=0))

    def part(row: Array, gram: Array) -> Array:
        """H_sᵀR⁻¹ times the fit at s, in units of η."""
        seen = jnp.einsum("k,pq->kpq", row, scale[:, None] * (gram @ units))
        return forward(root, seen.reshape(len(root), -1))

    each = jax.lax.map(lambda leaves: part(*leaves), (prior.between, sums.gram))
    return shares(jnp.einsum("srq,vrq->sv", each, each))
