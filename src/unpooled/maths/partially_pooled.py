"""Coefficients that sites share in part: θ_s = θ + B b_s, solved exactly at a cost linear in the sites.

y = Hθ + Z b_s + e, with Z = HB the columns in which a site may differ. θ = R ξ and b_s = T η_s with ξ, η_s
standard normal, so no covariance is ever inverted and any variance may be zero. A site is left out of the
joint system one after the other (a Schur complement), which leaves a system of the size of ξ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

Result = TypeVar("Result")


class Sums(eqx.Module):
    """What the rows leave, in units of the noise. Only the site parts are needed by site."""

    gram: Float[Array, "p p"]
    score: Float[Array, " p"]
    site_gram: Float[Array, "m q q"]
    site_cross: Float[Array, "m q p"]
    site_score: Float[Array, "m q"]


class Prior(eqx.Module):
    """R and T: factors of the covariances of θ and of every b_s."""

    common: Float[Array, "p r"]
    site: Float[Array, "q t"]


class Posterior(eqx.Module):
    """ξ and, given it, every η_s. `log_evidence` lacks what depends on the noise and y alone."""

    log_evidence: Float[Array, ""]
    common_root: Float[Array, "r r"]
    common_white: Float[Array, " r"]
    site_root: Float[Array, "m t t"]
    site_white: Float[Array, "m t"]
    site_cross: Float[Array, "m t p"]


class Coefficients(NamedTuple):
    """θ and every site's own part."""

    common: Float[Array, " p"]
    site: Float[Array, "m q"]


def posterior(sums: Sums, prior: Prior) -> Posterior:
    """The exact posterior and log marginal likelihood."""
    t = prior.site
    own = jnp.einsum("qt,mqr,ru->mtu", t, sums.site_gram, t) + jnp.eye(t.shape[1])
    site_root = each(jnp.linalg.cholesky, own)
    both = jnp.concatenate([sums.site_cross, sums.site_score[:, :, None]], axis=2)
    white = each(forward, site_root, jnp.einsum("qt,mqp->mtp", t, both))
    cross, site_white = white[:, :, :-1], white[:, :, -1]
    gram = sums.gram - jnp.einsum("mtp,mtr->pr", cross, cross)
    score = sums.score - jnp.einsum("mtp,mt->p", cross, site_white)
    r = prior.common
    common_root = jnp.linalg.cholesky(r.T @ gram @ r + jnp.eye(r.shape[1]))
    common_white = forward(common_root, r.T @ score)
    evidence = 0.5 * (jnp.sum(site_white**2) + jnp.sum(common_white**2))
    evidence = evidence - log_diagonal(site_root) - log_diagonal(common_root)
    return Posterior(evidence, common_root, common_white, site_root, site_white, cross)


def coefficients(fitted: Posterior, prior: Prior, key: Array | None = None) -> Coefficients:
    """One draw of θ and all b_s, or their mean without a key."""
    common_noise = site_noise = jnp.zeros(())
    if key is not None:
        first, second = jax.random.split(key)
        common_noise = jax.random.normal(first, fitted.common_white.shape)
        site_noise = jax.random.normal(second, fitted.site_white.shape)
    common = prior.common @ back(fitted.common_root, fitted.common_white + common_noise)
    left = fitted.site_white - fitted.site_cross @ common + site_noise
    return Coefficients(common, each(back, fitted.site_root, left) @ prior.site.T)


def variances(fitted: Posterior, prior: Prior, combination: Array, site_combination: Array) -> Array:
    """Var(kᵀθ + lᵀb_s | y) for rows k [c, p] and l [c, q], at every site: [m, c]."""

    def at(root: Array, cross: Array) -> Array:
        own = forward(root, prior.site.T @ site_combination.T)
        beyond = combination - own.T @ cross
        common = forward(fitted.common_root, (beyond @ prior.common).T)
        return jnp.sum(own**2, axis=0) + jnp.sum(common**2, axis=0)

    return each(at, fitted.site_root, fitted.site_cross)


def expectation_step(
    evidence: Callable[[Array], Array], variances: Array, levels: Array
) -> Float[Array, " c"]:
    """One EM step of variances v_c, each shared by `levels` normal terms.

    EM gives v + 2v²/levels · ∂(log evidence)/∂v: positive, and the evidence never falls.
    """
    return variances + 2.0 * variances**2 / levels * jax.grad(evidence)(variances)


def forward(root: Array, right: Array) -> Array:
    """L⁻¹b for a lower triangular L."""
    return jsl.solve_triangular(root, right, lower=True)


def back(root: Array, right: Array) -> Array:
    """L⁻ᵀb for a lower triangular L."""
    return jsl.solve_triangular(root, right, lower=True, trans=1)


def each(function: Callable[..., Result], *by_site: Array) -> Result:
    """Site after site: batched over many, jaxlib's linear algebra may wait for its own threads for ever."""
    return jax.lax.map(lambda parts: function(*parts), by_site)


def log_diagonal(root: Array) -> Array:
    """log|L|, summed over a stack of triangles."""
    return jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)))
