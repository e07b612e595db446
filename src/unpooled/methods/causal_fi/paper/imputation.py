"""Stage 1: p(u | y, w, x), learned from the entries that are seen."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.methods.causal_fi.paper import networks
from unpooled.methods.causal_fi.paper.model import Model
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Objective


class ImputationBound(Objective):
    """−ELBO of Eq. (fed-obj): S_s = −E_q log p(u_seen | y, w, x; θ)."""

    model: Model
    monte_carlo: int = eqx.field(static=True)
    one_exchange: ClassVar[bool] = True
    reveals: ClassVar[str] = (
        "the expected log likelihood of what is seen of the site's incomplete confounders, and its gradient"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        keys = jax.random.split(jax.random.wrap_key_data(parameters.fixed["key"]), self.monte_carlo)
        logs = jax.lax.map(
            lambda key: log_likelihood(self.model, networks.draw(parameters.free, key), rows), keys
        )
        return Statistics(-jnp.mean(logs))

    def value(self, parameters: Parameters, statistics: Statistics) -> Array:
        return statistics.summed + networks.divergence(parameters.free)


def log_likelihood(model: Model, imputation: Arrays, rows: Rows) -> Float[Array, ""]:
    """Σ log p(u_j | y, w, x) over the entries that are seen."""
    logs = model.entries.log_density(model.given_outcome(imputation, rows), rows.incomplete)
    return jnp.sum(logs * model.entries.by_column(rows.seen) * rows.present[:, None])
