"""Effects at a site under the Gaussian latent confounder.

All parameters but the outcome's decoders are point estimates, so the draws form one bundle: the point, and
the decoders of each draw. Effects of a bundle have shape [K, n].
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.methods.causal_rff.paper.functions import BOUNDS, StructuralFunctions, log_chance, log_normal
from unpooled.methods.causal_rff.paper.posterior import Latent, LatentSampler
from unpooled.models.outcome_family import Family, individual_effect
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds

PATHS = 100
"""Draws of each person's z given x; the same for both arms and all draws of the decoders."""
GUESSES = 15
"""Number of outcomes, besides the observed one, at which q contributes to the proposal for z."""
EACH = 8
"""Draws of z for each component of the proposal."""


class GaussianModel(eqx.Module):
    """Outcomes given x through z, under a bundle {"point", "key", "coefficients" [K, f, 2] of the site}."""

    sampler: LatentSampler
    family: Family

    @property
    def functions(self) -> StructuralFunctions:
        return self.sampler.functions

    def bounds(self) -> Bounds:
        return BOUNDS

    def paths(self, draw: Arrays, rows: Rows) -> Latent:
        """Draws of z given x, [paths, n, …]; computed sequentially to limit memory use."""
        key = rows.own_key(jax.random.wrap_key_data(draw["key"]))
        keys = jax.random.split(key, PATHS)
        return jax.lax.map(lambda one: self.sampler.given_covariates(draw["point"], rows, one), keys)

    def outcomes(self, draw: Arrays, rows: Rows, key: Array | None = None) -> Float[Array, "k n 2"]:
        """E[f_y(z) | x] in both arms, averaged over the same draws of z for do(0) and do(1)."""
        own = draw["coefficients"]
        z = self.paths(draw, rows).z
        if not self.functions.binary:
            # The outcome is linear in φ, so the average of φ(z) suffices for every draw.
            average = jnp.mean(jax.lax.map(lambda at: self._features(draw, at), z), axis=0)
            return jnp.einsum("nf,kfa->kna", average, own)

        def add(total: Array, at: Array) -> tuple[Array, None]:
            rate = jax.nn.sigmoid(jnp.einsum("nf,kfa->kna", self._features(draw, at), own))
            return total + rate / len(z), None

        zeros = jnp.zeros((own.shape[0], z.shape[1], 2))
        return self.family.standardised_mean(jax.lax.scan(add, zeros, z)[0])

    def individual(self, draw: Arrays, rows: Rows, key: Array, correlation: Array) -> Float[Array, "k n"]:
        """Draw z given all that is observed of a person, then the other arm's outcome given z."""
        own = draw["coefficients"]
        y, w = self.functions.outcome_of(rows), rows.treatment
        noise = jnp.exp(2.0 * draw["point"]["noise"]["outcome"])

        def one(leaves: tuple[Array, Array]) -> Array:
            for_z, for_noise = jax.random.split(leaves[1])
            z = self.sampler.given_all(draw["point"], rows, y, w, for_z).z
            both = self._features(draw, z) @ leaves[0]
            return individual_effect(self.family, both, noise, rows, correlation, for_noise)

        return jax.lax.map(one, (own, jax.random.split(key, own.shape[0])))

    def log_density(self, draw: Arrays, rows: Rows) -> Float[Array, " n"]:
        """log p(y | x, w) = log E[p(y | z, w) | x, w] under the latent model, not the auxiliary one.

        Self-normalised importance sampling: half of the draws of z come from q at the observed outcome, half
        from q at quantiles of p(y | x, w). The proposal thus covers both p(z | x, w, y) and p(z | x, w).
        """
        free, functions = draw["point"], self.functions
        y, w = functions.outcome_of(rows), rows.treatment
        guesses = self._guesses(free, rows, w)
        every = jnp.concatenate([jnp.broadcast_to(y, guesses.shape), guesses])
        centres = jax.lax.map(lambda guess: functions.encode(free, rows, guess, w), every)
        key = rows.own_key(jax.random.wrap_key_data(draw["key"]))
        noise = jax.random.normal(key, (EACH, *centres.shape))
        drawn = (centres + jnp.exp(free["spread"]) * noise).reshape(-1, *centres.shape[1:])
        own = draw["coefficients"]

        def weigh(z: Array) -> tuple[Array, Array]:
            decoded = functions.decode(free, z, rows.site)
            joint = functions.log_rest(free, decoded, rows, w) - 0.5 * jnp.sum(z**2, axis=1)
            proposal = jax.nn.logsumexp(jnp.sum(log_normal(centres, free["spread"], z), axis=2), axis=0)
            return joint - proposal, self._log_outcomes(free, self._features(draw, z) @ own, y, w)

        weight, outcome = jax.lax.map(weigh, drawn)
        total = jax.nn.logsumexp(weight[:, None] + outcome, axis=0) - jax.nn.logsumexp(weight, axis=0)
        return jax.nn.logsumexp(total, axis=0) - jnp.log(own.shape[0])

    def predicted(self, draw: Arrays, rows: Rows) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Mean and variance of a continuous y given (x, w), by the auxiliary regression."""
        free, arm = draw["point"], rows.treatment.astype(int)
        mean = self.functions.auxiliary(free, rows)[1][jnp.arange(len(arm)), arm]
        return mean, jnp.exp(2.0 * free["noise"]["auxiliary"])[arm]

    def _features(self, draw: Arrays, z: Array) -> Array:
        return self.functions.latent_features(draw["point"], z)

    def _guesses(self, free: Arrays, rows: Rows, w: Array) -> Float[Array, "g n"]:
        """Quantiles of p(y | x, w); for 0/1 outcomes zeros and ones in turn."""
        if self.functions.binary:
            return jnp.broadcast_to(jnp.arange(GUESSES)[:, None] % 2.0, (GUESSES, len(w)))
        arm = w.astype(int)
        mean = self.functions.auxiliary(free, rows)[1][jnp.arange(len(w)), arm]
        quantiles = jax.scipy.special.ndtri((jnp.arange(GUESSES) + 0.5) / GUESSES)
        return mean + jnp.exp(free["noise"]["auxiliary"])[arm] * quantiles[:, None]

    def _log_outcomes(self, free: Arrays, both: Float[Array, "k n 2"], y: Array, w: Array) -> Array:
        mean = jnp.where(w == 1.0, both[:, :, 1], both[:, :, 0])
        if self.functions.binary:
            return log_chance(mean, y)
        return log_normal(mean, free["noise"]["outcome"][w.astype(int)], y)
