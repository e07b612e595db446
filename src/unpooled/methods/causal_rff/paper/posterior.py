"""Posterior draws with the Gaussian latent confounder: of z at the sites, of the decoders at the coordinator.

A person's z is drawn given (x, y, w), or given x alone by the paper's five steps. Sums of features of drawn z
then give the coordinator the posterior of the outcome's decoders.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths.mcmc import independence
from unpooled.methods.causal_rff.paper.functions import BOUNDS, StructuralFunctions, log_normal
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds, Stage

STEPS = 10
"""Metropolis steps, started from q. At an acceptance rate of ½, one chain in a thousand never moves."""


class Latent(NamedTuple):
    """One z per person, and the acceptance rate of the proposals (1 if z is drawn directly from q)."""

    z: Float[Array, "n z"]
    acceptance: Float[Array, " n"]


class LatentSampler(eqx.Module):
    """Draws z from p(z | x, y, w) by independence Metropolis with proposal q, or directly from q."""

    functions: StructuralFunctions
    metropolis: bool = eqx.field(static=True)

    def given_all(self, free: Arrays, rows: Rows, y: Array, w: Array, key: Array) -> Latent:
        """z ~ p(z | x, y, w)."""
        mean, log_sd = self.functions.encode(free, rows, y, w), free["spread"]
        first, second = jax.random.split(key)
        steps = STEPS if self.metropolis else 0
        proposals = mean + jnp.exp(log_sd) * jax.random.normal(first, (steps + 1, *mean.shape))
        if not self.metropolis:
            return Latent(proposals[0], jnp.ones(len(y)))
        found = independence(
            lambda z: self._log_joint(free, rows, y, w, z),
            lambda z: jnp.sum(log_normal(mean, log_sd, z), axis=1),
            proposals,
            second,
        )
        return Latent(found.last, found.acceptance)

    def given_covariates(self, free: Arrays, rows: Rows, key: Array) -> Latent:
        """w ~ p(w | x), y ~ p(y | x, w), then z ~ p(z | x, y, w)."""
        for_w, for_y, for_z = jax.random.split(key, 3)
        logit, arms = self.functions.auxiliary(free, rows)
        w = jax.random.bernoulli(for_w, jax.nn.sigmoid(logit)).astype(float)
        mean = (1.0 - w) * arms[:, 0] + w * arms[:, 1]
        if self.functions.binary:
            y = jax.random.bernoulli(for_y, jax.nn.sigmoid(mean)).astype(float)
        else:
            log_sd = free["noise"]["auxiliary"][w.astype(int)]
            y = mean + jnp.exp(log_sd) * jax.random.normal(for_y, mean.shape)
        return self.given_all(free, rows, y, w, for_z)

    def _log_joint(self, free: Arrays, rows: Rows, y: Array, w: Array, z: Array) -> Array:
        """log p(y | z, w) + log p(w | z) + log p(x | z) + log p(z), up to a constant."""
        decoded = self.functions.decode(free, z, rows.site)
        log = self.functions.log_outcome(free, decoded, y, w)
        log = log + self.functions.log_rest(free, decoded, rows, w)
        return log - 0.5 * jnp.sum(z**2, axis=1)


class LatentMoments(Stage):
    """Normal equations of the outcome on features of drawn z, by arm and weighted by the noise."""

    sampler: LatentSampler
    reveals: ClassVar[str] = (
        "by arm, at this site: products of the features of people's drawn latent confounders, and their "
        "sums weighted by the outcome; for sums over sites: the share of Metropolis proposals taken"
    )

    def bounds(self) -> Bounds:
        return BOUNDS

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        fixed, functions = parameters.fixed, self.sampler.functions
        free = fixed["point"]
        use = rows.present * (rows.fold != fixed["fold"])
        key = rows.own_key(jax.random.wrap_key_data(fixed["key"]))
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
        """Weight and response by arm, [2, n]: of the Gaussian regression, or of a Newton step for logits."""
        functions = self.sampler.functions
        if not functions.binary:
            weight = jnp.exp(-2.0 * free["noise"]["outcome"])[:, None]
            return jnp.broadcast_to(weight, (2, len(y))), jnp.broadcast_to(y, (2, len(y)))
        logit = (phi @ functions.at_site(free, "decoder", rows.site)[:, :2]).T
        chance = jax.nn.sigmoid(logit)
        weight = jnp.maximum(chance * (1.0 - chance), 1e-6)
        return weight, logit + (y - chance) / weight


def draw(
    functions: StructuralFunctions, free: Arrays, moments: Arrays, *, regulariser: float, count: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, "k m f 2"]:  # fmt: skip
    """Draws of each site's outcome coefficients, transfer included, from one imputation of z."""
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
    """The joint precision of all sites' θ is 2ζI + Σ_s λ_s λ_sᵀ ⊗ G_s, where λ_s is row s of `sharing`."""
    sites, size = score.shape
    precision = np.einsum("su,sv,sfg->ufvg", sharing, sharing, gram).reshape(sites * size, sites * size)
    precision += 2.0 * regulariser * np.eye(sites * size)
    root = np.linalg.cholesky(precision)
    white = np.linalg.solve(root, np.einsum("su,sf->uf", sharing, score).ravel())
    normal = rng.standard_normal((count, len(white)))
    theta = np.linalg.solve(root.T, (white + normal).T).T.reshape(count, sites, size)
    return np.einsum("sv,kvf->ksf", sharing, theta)
