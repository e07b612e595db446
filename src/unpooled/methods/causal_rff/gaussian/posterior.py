"""How sure the outcome's decoders are: the posterior of θ_y0 and θ_y1 given everybody's z, drawn anew.

The paper gives point estimates. Given z, the outcome is a linear regression in φ(z) with a Gaussian prior
(its regulariser), so θ_y has an exact Gaussian posterior from one round of sums; 0/1 outcomes have it to
second order about the point (a Newton step of Laplace's method). With several sets of z the draws carry
what is not known of z, too. All else (the other decoders, noise, λ, length-scales) stays at its point, so
intervals leave that much out.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.methods.causal_rff.gaussian.functions import Functions
from unpooled.methods.causal_rff.gaussian.latent import Sampler
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage


class Moments(Stage):
    """Sums of the features of a drawn z by arm, in units of the noise."""

    sampler: Sampler
    reveals: ClassVar[str] = (
        "by arm, at this site: products of the features of people's drawn latent confounders, and their "
        "sums weighted by the outcome; for sums over sites: the share of Metropolis proposals taken"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        fixed, functions = parameters.fixed, self.sampler.functions
        free = fixed["point"]
        use = rows.present * (rows.fold != fixed["fold"])
        key = jax.random.fold_in(jax.random.wrap_key_data(fixed["key"]), rows.site)
        y, w = functions.outcome_of(rows), rows.treatment
        drawn = self.sampler.given_all(free, rows, y, w, key)
        phi = functions.latent_features(free, drawn.z)
        weight, response = self._working(free, rows, phi, y)
        arms = jnp.stack([1.0 - w, w]) * use * weight
        return Statistics(
            {"accepted": use @ drawn.acceptance, "people": use.sum()},
            {
                "gram": jnp.einsum("an,nf,ng->afg", arms, phi, phi),
                "score": jnp.einsum("an,an,nf->af", arms, response, phi),
            },
        )

    def _working(self, free: Arrays, rows: Rows, phi: Array, y: Array) -> tuple[Array, Array]:
        """Weight and response by arm, [2, n]: those of the regression, or of a Newton step."""
        functions = self.sampler.functions
        if not functions.binary:
            weight = jnp.exp(-2.0 * free["noise"]["outcome"])[:, None]
            return jnp.broadcast_to(weight, (2, len(y))), jnp.broadcast_to(y, (2, len(y)))
        logit = (phi @ functions.at_site(free, "decoder", rows.site)[:, :2]).T
        chance = jax.nn.sigmoid(logit)
        weight = jnp.maximum(chance * (1.0 - chance), 1e-6)
        return weight, logit + (y - chance) / weight


def draw(
    functions: Functions, free: Arrays, moments: Arrays, *, regulariser: float, count: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, "k m f 2"]:  # fmt: skip
    """Draws of each site's own (θ_y + what it takes from others), from one set of everybody's z."""
    sites = moments["gram"].shape[0]
    sharing = np.asarray(functions.sharing(free, "latent", sites))
    arms = [
        _draw_arm(sharing, moments["gram"][:, arm], moments["score"][:, arm], regulariser, count, rng)
        for arm in (0, 1)
    ]
    return np.stack(arms, axis=-1)


def _draw_arm(
    sharing: np.ndarray, gram: np.ndarray, score: np.ndarray, regulariser: float, count: int,
    rng: np.random.Generator,
) -> np.ndarray:  # fmt: skip
    """θ of all sites has precision 2ζI + Σ_s λ_s λ_sᵀ ⊗ G_s, for λ_s the row of the sharing."""
    sites, size = score.shape
    precision = np.einsum("su,sv,sfg->ufvg", sharing, sharing, gram).reshape(sites * size, sites * size)
    precision += 2.0 * regulariser * np.eye(sites * size)
    root = np.linalg.cholesky(precision)
    white = np.linalg.solve(root, np.einsum("su,sf->uf", sharing, score).ravel())
    normal = rng.standard_normal((count, len(white)))
    theta = np.linalg.solve(root.T, (white + normal).T).T.reshape(count, sites, size)
    return np.einsum("sv,kvf->ksf", sharing, theta)
