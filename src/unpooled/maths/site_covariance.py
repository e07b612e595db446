"""Coefficients with any covariance between sites: (θ_1, …, θ_m) ~ N(0, AAᵀ ⊗ diag(v)), solved exactly.

θ_s = diag(√v) Σ_k A_sk η_k with every η_k standard normal, so neither A nor v has to be invertible. The
system is dense and has the size of all η together; partial pooling, in contrast, is linear in the sites.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.maths.linear_algebra import back, forward, log_diagonal, map_sites
from unpooled.maths.partial_pooling import orthonormal, shares


class SiteCovarianceSums(eqx.Module):
    """Sufficient statistics of each site's rows, in units of the noise."""

    gram: Float[Array, "m p p"]
    score: Float[Array, "m p"]


class SiteCovariancePrior(eqx.Module):
    """A, a factor of the covariance between sites, and the variance of each coefficient."""

    between: Float[Array, "m k"]
    variances: Float[Array, " p"]


class SiteCovariancePosterior(eqx.Module):
    """The posterior of the stacked η. `log_evidence` omits the terms that depend only on the noise and y."""

    log_evidence: Float[Array, ""]
    root: Float[Array, "kp kp"]
    white: Float[Array, " kp"]


def posterior(sums: SiteCovarianceSums, prior: SiteCovariancePrior) -> SiteCovariancePosterior:
    """The exact posterior and the log marginal likelihood."""
    between, scale = prior.between, jnp.sqrt(prior.variances)
    gram = scale[:, None] * sums.gram * scale
    seen = jnp.einsum("sk,sl,sij->kilj", between, between, gram)
    size = between.shape[1] * len(scale)
    root = jnp.linalg.cholesky(seen.reshape(size, size) + jnp.eye(size))
    white = forward(root, (between.T @ (sums.score * scale)).reshape(-1))
    return SiteCovariancePosterior(0.5 * white @ white - log_diagonal(root), root, white)


def coefficients(
    fitted: SiteCovariancePosterior, prior: SiteCovariancePrior, key: Array | None = None
) -> Float[Array, "m p"]:
    """One draw of every θ_s, or their posterior mean if no key is given."""
    noise = 0.0 if key is None else jax.random.normal(key, fitted.white.shape)
    eta = back(fitted.root, fitted.white + noise).reshape(prior.between.shape[1], -1)
    return prior.between @ eta * jnp.sqrt(prior.variances)


def borrowed_shares(sums: SiteCovarianceSums, prior: SiteCovariancePrior) -> Float[Array, "m m"]:
    """The borrowed shares as defined in `unpooled.maths.partial_pooling`, over all coefficients."""
    root, scale = posterior(sums, prior).root, jnp.sqrt(prior.variances)
    units = orthonormal(sums.gram.sum(axis=0))

    def part(row: Array, gram: Array) -> Array:
        """H_sᵀR⁻¹ times the fit at s, in units of η."""
        seen = jnp.einsum("k,pq->kpq", row, scale[:, None] * (gram @ units))
        return forward(root, seen.reshape(len(root), -1))

    per_site = map_sites(part, prior.between, sums.gram)
    return shares(jnp.einsum("srq,vrq->sv", per_site, per_site))
