"""Gaussian regression for two arms with site shifts, from sums of site statistics.

y = Σ_f φ_f(x) β_f[w] + g_s[w] + e, with e ~ N(0, R) within a site, β_f = T_f ξ_f and g = (T_g ⊗ L_M) ξ_g
with ξ standard normal. The posterior precision of ξ is I + (design)ᵀR⁻¹(design), which is never singular,
even if a variance is zero.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float


class RegressionSums(eqx.Module):
    """Sufficient statistics of the rows, weighted by R⁻¹. Feature 0 is the intercept, on which shifts act."""

    gram: Float[Array, "2 2 p p"]
    moment: Float[Array, "2 p"]
    square: Float[Array, ""]
    log_determinant: Float[Array, ""]
    site_gram: Float[Array, "m 2 2 p"]
    site_moment: Float[Array, "m 2"]


class RegressionPrior(eqx.Module):
    """T_f of every feature, T_g of the shifts (None for a model without shifts), and L_M between sites."""

    feature: Float[Array, "p 2 2"]
    shift: Float[Array, "2 2"] | None
    site: Float[Array, "m m"]


class RegressionPosterior(eqx.Module):
    """ξ | y ~ N(A⁻¹b, A⁻¹) with A = CCᵀ; `whitened` is C⁻¹b."""

    log_evidence: Float[Array, ""]
    cholesky: Array
    whitened: Array


def posterior(sums: RegressionSums, prior: RegressionPrior) -> RegressionPosterior:
    """The exact posterior of ξ and the exact log marginal likelihood (up to n·log 2π/2)."""
    precision, score = _normal_equations(sums, prior)
    size = score.shape[0]
    root = jnp.linalg.cholesky(precision + jnp.eye(size))
    whitened = jsl.solve_triangular(root, score, lower=True)
    evidence = 0.5 * (whitened @ whitened - sums.square - sums.log_determinant)
    return RegressionPosterior(evidence - jnp.sum(jnp.log(jnp.diagonal(root))), root, whitened)


def with_combination(sums: RegressionSums, combination: Float[Array, " p"]) -> RegressionSums:
    """The sums with one more feature, a linear combination of the others."""

    def appended(array: Array) -> Array:
        return jnp.concatenate([array, (array @ combination)[..., None]], axis=-1)

    def on_both_sides(gram: Array) -> Array:
        return jnp.swapaxes(appended(jnp.swapaxes(appended(gram), -1, -2)), -1, -2)

    return RegressionSums(
        gram=on_both_sides(sums.gram),
        moment=appended(sums.moment),
        square=sums.square,
        log_determinant=sums.log_determinant,
        site_gram=appended(sums.site_gram),
        site_moment=sums.site_moment,
    )


def _normal_equations(sums: RegressionSums, prior: RegressionPrior) -> tuple[Array, Array]:
    t, features = prior.feature, prior.feature.shape[0]
    gram = _both_sides(t, sums.gram).reshape(2 * features, 2 * features)
    score = jnp.einsum("fak,af->kf", t, sums.moment).reshape(-1)
    if prior.shift is None:
        return gram, score
    u, site = prior.shift, prior.site
    sites = 2 * site.shape[0]
    cross = jnp.einsum("ak,st,sabf,fbl->ktlf", u, site, sums.site_gram, t).reshape(sites, 2 * features)
    own = jnp.einsum("ak,st,sab,bl,su->ktlu", u, site, sums.site_gram[..., 0], u, site).reshape(sites, sites)
    shift_score = jnp.einsum("ak,st,sa->kt", u, site, sums.site_moment).reshape(-1)
    return jnp.block([[gram, cross.T], [cross, own]]), jnp.concatenate([score, shift_score])


def _both_sides(t: Float[Array, "p 2 2"], gram: Float[Array, "2 2 p p"]) -> Float[Array, "2 p 2 p"]:
    """Σ_ab T_f[a,k]·gram[a,b,f,g]·T_g[b,l], written out over the arms because XLA does not fuse an einsum."""
    by_arm = jnp.transpose(t, (1, 2, 0))[:, :, :, None]
    left = by_arm[0][:, None] * gram[0] + by_arm[1][:, None] * gram[1]
    across = jnp.swapaxes(by_arm, 2, 3)
    both = left[:, None, 0] * across[0] + left[:, None, 1] * across[1]
    return jnp.transpose(both, (0, 2, 1, 3))


def coefficients(
    prior: RegressionPrior, whitened_draw: Array
) -> tuple[Float[Array, "2 p"], Float[Array, "2 m"]]:
    """β and g for one draw of ξ."""
    features = prior.feature.shape[0]
    xi = whitened_draw[: 2 * features].reshape(2, features)
    beta = jnp.einsum("fak,kf->af", prior.feature, xi)
    if prior.shift is None:
        return beta, jnp.zeros((2, prior.site.shape[0]))
    shift = whitened_draw[2 * features :].reshape(2, -1)
    return beta, jnp.einsum("ak,st,kt->as", prior.shift, prior.site, shift)


def draw(fitted: RegressionPosterior, key: Array | None) -> Array:
    """One draw of ξ, or its posterior mean if no key is given."""
    noise = 0.0 if key is None else jax.random.normal(key, fitted.whitened.shape)
    return jsl.solve_triangular(fitted.cholesky, fitted.whitened + noise, lower=True, trans=1)
