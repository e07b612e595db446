"""Outcomes as numbers with Gaussian noise, or as 0/1 with a logit; effects of either in standard units."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.methods.causal_rff.settings import CausalRFFContext
from unpooled.protocol.rows import Rows


class OutcomeScale(eqx.Module):
    """What a linear predictor means. Sites standardise every outcome; a 0/1 outcome is one where positive."""

    sd: Float[Array, ""]
    binary: bool = eqx.field(static=True)

    def seen(self, rows: Rows) -> Float[Array, " n"]:
        """The outcome on the scale that is modelled: standardised, or 0/1."""
        return (rows.outcome > 0.0).astype(float) if self.binary else rows.outcome

    def expected(self, predictor: Array) -> Array:
        return jax.nn.sigmoid(predictor) if self.binary else predictor

    def standardised(self, effect: Array) -> Array:
        """A difference of probabilities in units of the outcome's sd, as all effects leave a method."""
        return effect / self.sd if self.binary else effect

    def log_density(self, rows: Rows, predictor: Array, noise: Array) -> Array:
        if self.binary:
            return jax.nn.log_sigmoid(jnp.where(rows.outcome > 0.0, predictor, -predictor))
        return -0.5 * ((rows.outcome - predictor) ** 2 / noise + jnp.log(2.0 * jnp.pi * noise))

    def individual(
        self, both: Float[Array, "n 2"], noise: Array, rows: Rows, key: Array, correlation: Array
    ) -> Float[Array, " n"]:
        """(2w − 1)(y − y_mis): the other arm's outcome with its noise, which may go with the one seen.

        A 0/1 outcome has no noise of its own to go with, so there the two are independent.
        """
        arm = rows.treatment.astype(int)
        person = jnp.arange(len(arm))
        seen = self.seen(rows)
        if self.binary:
            missing = jax.random.bernoulli(key, self.expected(both[person, 1 - arm])).astype(float)
        else:
            sd = jnp.sqrt(noise)
            own = (seen - both[person, arm]) / sd[arm]
            other = correlation * own + jnp.sqrt(1.0 - correlation**2) * jax.random.normal(key, own.shape)
            missing = both[person, 1 - arm] + sd[1 - arm] * other
        return self.standardised((2.0 * rows.treatment - 1.0) * (seen - missing))


def outcome_scale(context: CausalRFFContext) -> OutcomeScale:
    return OutcomeScale(jnp.asarray(context.outcome_sd), binary=bool(context.binary_outcome))
