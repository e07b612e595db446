"""Partially pooled coefficients θ_s = θ + B b_s, solved exactly, and how much sites borrow from each other.

y = Hθ + Z b_s + e, where Z = HB holds the columns whose coefficients may differ between sites. θ = R ξ and
b_s = T η_s with ξ and η_s standard normal, so no covariance is ever inverted and any variance may be zero.
The sites are eliminated one by one (Schur complements), which leaves a system of the size of ξ: the cost is
linear in the number of sites.

Borrowed strength is the share of a site's fit that comes from each site's rows. The fit is linear in the
outcomes: if all outcomes at v rise by f, the fit at s rises by H_s K_sv H_vᵀR_v⁻¹f, where K_sv is the
posterior covariance of the coefficients of s and v. Averaged over the functions f of the columns in Z:

    T_sv = tr[ (Σ_u Z_uᵀR_u⁻¹Z_u)⁻¹ · Z_sᵀR_s⁻¹H_s K_sv H_vᵀR_v⁻¹Z_v ],    share_sv = T_sv / Σ_u T_su.

T is symmetric and invariant to a linear change of the columns. The shares are not symmetric: a small site
borrows more from a large one than the other way round. See docs/decisions/0010-borrowed-share.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.maths.linear_algebra import back, forward, log_diagonal, map_sites


class PoolingSums(eqx.Module):
    """Sufficient statistics of the rows, in units of the noise; only those named `site_…` are per site."""

    gram: Float[Array, "p p"]
    score: Float[Array, " p"]
    site_gram: Float[Array, "m q q"]
    site_cross: Float[Array, "m q p"]
    site_score: Float[Array, "m q"]


class PoolingPrior(eqx.Module):
    """R and T, factors of the covariances of θ and of every b_s."""

    common: Float[Array, "p r"]
    site: Float[Array, "q t"]


class PoolingPosterior(eqx.Module):
    """The posterior of ξ and, given ξ, of every η_s.

    `log_evidence` omits the terms that depend only on the noise and y.
    """

    log_evidence: Float[Array, ""]
    common_root: Float[Array, "r r"]
    common_white: Float[Array, " r"]
    site_root: Float[Array, "m t t"]
    site_white: Float[Array, "m t"]
    site_cross: Float[Array, "m t p"]


class Coefficients(NamedTuple):
    """θ and every site's own part b_s."""

    common: Float[Array, " p"]
    site: Float[Array, "m q"]


def posterior(sums: PoolingSums, prior: PoolingPrior) -> PoolingPosterior:
    """The exact posterior and the log marginal likelihood."""
    t = prior.site
    own = jnp.einsum("qt,mqr,ru->mtu", t, sums.site_gram, t) + jnp.eye(t.shape[1])
    site_root = map_sites(jnp.linalg.cholesky, own)
    both = jnp.concatenate([sums.site_cross, sums.site_score[:, :, None]], axis=2)
    white = map_sites(forward, site_root, jnp.einsum("qt,mqp->mtp", t, both))
    cross, site_white = white[:, :, :-1], white[:, :, -1]
    gram = sums.gram - jnp.einsum("mtp,mtr->pr", cross, cross)
    score = sums.score - jnp.einsum("mtp,mt->p", cross, site_white)
    r = prior.common
    common_root = jnp.linalg.cholesky(r.T @ gram @ r + jnp.eye(r.shape[1]))
    common_white = forward(common_root, r.T @ score)
    evidence = 0.5 * (jnp.sum(site_white**2) + jnp.sum(common_white**2))
    evidence = evidence - log_diagonal(site_root) - log_diagonal(common_root)
    return PoolingPosterior(evidence, common_root, common_white, site_root, site_white, cross)


def coefficients(fitted: PoolingPosterior, prior: PoolingPrior, key: Array | None = None) -> Coefficients:
    """One draw of θ and all b_s, or their posterior mean if no key is given."""
    common_noise = site_noise = jnp.zeros(())
    if key is not None:
        first, second = jax.random.split(key)
        common_noise = jax.random.normal(first, fitted.common_white.shape)
        site_noise = jax.random.normal(second, fitted.site_white.shape)
    common = prior.common @ back(fitted.common_root, fitted.common_white + common_noise)
    left = fitted.site_white - fitted.site_cross @ common + site_noise
    return Coefficients(common, map_sites(back, fitted.site_root, left) @ prior.site.T)


def variances(
    fitted: PoolingPosterior, prior: PoolingPrior, combination: Array, site_combination: Array
) -> Array:
    """Var(kᵀθ + lᵀb_s | y) for rows k [c, p] and l [c, q], at every site: [m, c]."""

    def at(root: Array, cross: Array) -> Array:
        own = forward(root, prior.site.T @ site_combination.T)
        beyond = combination - own.T @ cross
        common = forward(fitted.common_root, (beyond @ prior.common).T)
        return jnp.sum(own**2, axis=0) + jnp.sum(common**2, axis=0)

    return map_sites(at, fitted.site_root, fitted.site_cross)


def expectation_step(
    evidence: Callable[[Array], Array], variances: Array, levels: Array
) -> Float[Array, " c"]:
    """One EM step for variances v_c, each of which is shared by `levels` normal terms.

    The step is v + 2v²/levels · ∂(log evidence)/∂v. It stays positive and never lowers the evidence.
    """
    return variances + 2.0 * variances**2 / levels * jax.grad(evidence)(variances)


SEEN = 1e-10
"""Directions with an eigenvalue below this fraction of the largest one are left out."""


def borrowed_shares(sums: PoolingSums, prior: PoolingPrior) -> Float[Array, "m m"]:
    """The share of site s's fit (row) that comes from the rows of site v (column); rows sum to one."""
    fitted = posterior(sums, prior)
    units = orthonormal(sums.site_gram.sum(axis=0))

    def parts(root: Array, cross: Array, gram: Array, seen: Array) -> tuple[Array, Array]:
        """Z_sᵀR⁻¹ times the coefficients, split into the site's own part and the common part."""
        own = forward(root, prior.site.T @ gram @ units)
        beyond = units.T @ seen - own.T @ cross
        return own, forward(fitted.common_root, prior.common.T @ beyond.T)

    own, common = map_sites(parts, fitted.site_root, fitted.site_cross, sums.site_gram, sums.site_cross)
    together = jnp.einsum("srq,vrq->sv", common, common)
    return shares(together + jnp.diag(jnp.sum(own**2, axis=(1, 2))))


def orthonormal(gram: Float[Array, "q q"]) -> Float[Array, "q q"]:
    """Columns b for which the functions Zb are orthonormal over all rows; zero for directions left out."""
    values, vectors = jnp.linalg.eigh(gram)
    seen = values > SEEN * values[-1]
    return vectors * jnp.where(seen, 1.0 / jnp.sqrt(jnp.where(seen, values, 1.0)), 0.0)


def shares(together: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """T with every row divided by its sum."""
    return together / together.sum(axis=1, keepdims=True)
