"""How much of a site's fit comes from the people of every other site.

The fit is linear in the outcomes: where v's people all have outcomes higher by f, the fit at s rises by
H_s K_sv H_vᵀR_v⁻¹f, with K_sv the posterior covariance of the coefficients of s and of v. Take for f every
function of the columns in which sites may differ, all equally, and ask how much of it is seen at s:

    T_sv = tr[ (Σ_u Z_uᵀR_u⁻¹Z_u)⁻¹ · Z_sᵀR_s⁻¹H_s K_sv H_vᵀR_v⁻¹Z_v ],    share_sv = T_sv / Σ_u T_su.

T does not depend on how the columns are written, and it is symmetric: s and v hold equally much in common,
but of a small site's fit that is more. See docs/decisions/0010-borrowed-share.md.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.maths import partially_pooled as pooling
from unpooled.maths.partially_pooled import forward

SEEN = 1e-10
"""A function that everybody's rows together see less than this, of the one they see best, is left out."""


def partly_shared(sums: pooling.Sums, prior: pooling.Prior) -> Float[Array, "m m"]:
    """Shares where θ_s = θ + B b_s: row s borrows from column v; rows sum to one."""
    fitted = pooling.posterior(sums, prior)
    units = orthonormal(sums.site_gram.sum(axis=0))

    def parts(root: Array, cross: Array, gram: Array, seen: Array) -> tuple[Array, Array]:
        """Z_sᵀR⁻¹ times the coefficients, by what a site has alone and by what all have."""
        own = forward(root, prior.site.T @ gram @ units)
        beyond = units.T @ seen - own.T @ cross
        return own, forward(fitted.common_root, prior.common.T @ beyond.T)

    own, common = pooling.each(parts, fitted.site_root, fitted.site_cross, sums.site_gram, sums.site_cross)
    together = jnp.einsum("srq,vrq->sv", common, common)
    return shares(together + jnp.diag(jnp.sum(own**2, axis=(1, 2))))


def orthonormal(gram: Float[Array, "q q"]) -> Float[Array, "q q"]:
    """Columns b for which the functions Zb are orthonormal over everybody; zeros where nobody sees one."""
    values, vectors = jnp.linalg.eigh(gram)
    seen = values > SEEN * values[-1]
    return vectors * jnp.where(seen, 1.0 / jnp.sqrt(jnp.where(seen, values, 1.0)), 0.0)


def shares(together: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """T by rows."""
    return together / together.sum(axis=1, keepdims=True)
