"""The bounds of both stages.

Stage 1 fits p(u | y, w, x) to the observed entries. Stage 2 fits the surrogates p̂(u_mis | x, u_seen) and
p̂(y | w, x, u) to pseudo data, in which stage 1 has filled the missing entries.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.methods.causal_fi.paper import mean_field
from unpooled.methods.causal_fi.paper.model import BOUNDS, NetworkModel
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds, Objective


class ImputationBound(Objective):
    """−ELBO of Eq. (fed-obj): S_s = −E_q log p(u_seen | y, w, x; θ)."""

    model: NetworkModel
    monte_carlo: int = eqx.field(static=True)
    one_exchange: ClassVar[bool] = True
    reveals: ClassVar[str] = (
        "the expected log likelihood of the observed values of the site's incomplete confounders, and its "
        "gradient"
    )

    def bounds(self) -> Bounds:
        return BOUNDS

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        keys = jax.random.split(jax.random.wrap_key_data(parameters.fixed["key"]), self.monte_carlo)
        logs = jax.lax.map(
            lambda key: observed_log_likelihood(self.model, mean_field.draw(parameters.free, key), rows), keys
        )
        return Statistics(-jnp.mean(logs))

    def value(self, parameters: Parameters, statistics: Statistics) -> Array:
        return statistics.summed + mean_field.divergence(parameters.free)


def observed_log_likelihood(model: NetworkModel, imputation: Arrays, rows: Rows) -> Float[Array, ""]:
    """Σ log p(u_j | y, w, x) over the observed entries."""
    logs = model.entries.log_density(model.given_outcome(imputation, rows), rows.incomplete)
    return jnp.sum(logs * model.entries.by_column(rows.seen) * rows.present[:, None])


class Pseudo(NamedTuple):
    """Imputed rows, and a mask of the entries shown to the network of u, which predicts the others."""

    u: Float[Array, "n u"]
    shown: Float[Array, "n u"]


class SurrogateBound(Objective):
    """−ELBO of both surrogates: S_s = −E log p̂(u_hidden | x, u_shown; θ_u) − E log p̂(y | w, x, u; θ_y).

    The expectations are over q, over the weights of stage 1, and over the pseudo data.
    """

    model: NetworkModel
    monte_carlo: int = eqx.field(static=True)
    one_exchange: ClassVar[bool] = True
    reveals: ClassVar[str] = (
        "the expected log likelihood of the site's outcomes and incomplete confounders with missing values "
        "drawn, and its gradient"
    )

    def bounds(self) -> Bounds:
        return BOUNDS

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        def one(key: Array) -> Array:
            for_first, for_both, for_rows = jax.random.split(key, 3)
            imputation = mean_field.draw(parameters.fixed["imputation"], for_first)
            data = pseudo(self.model, imputation, rows, rows.own_key(for_rows))
            return surrogate_log_likelihood(
                self.model, mean_field.draw(parameters.free, for_both), rows, data
            )

        keys = jax.random.split(jax.random.wrap_key_data(parameters.fixed["key"]), self.monte_carlo)
        return Statistics(-jnp.mean(jax.lax.map(one, keys)))

    def value(self, parameters: Parameters, statistics: Statistics) -> Array:
        return statistics.summed + mean_field.divergence(parameters.free)


def pseudo(model: NetworkModel, imputation: Arrays, rows: Rows, key: Array) -> Pseudo:
    """Draw missing entries given (y, w, x), and show a random person's pattern or a random subset.

    A person's own pattern is not used: if missingness depends on the outcome, the pattern is informative
    and the network would learn p(u_mis | x, u_seen, r).
    """
    for_u, for_whose, for_coins = jax.random.split(key, 3)
    people, columns = len(rows.present), len(model.entries.layout.columns)
    chance = rows.present / jnp.maximum(rows.present.sum(), 1.0)
    others = rows.seen[jax.random.choice(for_whose, people, (people,), p=chance)]
    coins = jax.random.bernoulli(for_coins, 0.5, (people, columns + 1))
    shown = jnp.where(coins[:, :1], others, model.entries.by_feature(coins[:, 1:].astype(float)))
    return Pseudo(model.completed(imputation, rows, for_u), shown)


def surrogate_log_likelihood(
    model: NetworkModel, surrogates: Arrays, rows: Rows, data: Pseudo
) -> Float[Array, ""]:
    """Log likelihood of the hidden entries and of the outcomes."""
    outputs = model.given_shown(surrogates["confounders"], rows.covariates, data.u, data.shown)
    hidden = 1.0 - model.entries.by_column(data.shown)
    of_u = jnp.sum(model.entries.log_density(outputs, data.u) * hidden, axis=1)
    return jnp.sum(rows.present * (of_u + model.log_outcome(surrogates["outcome"], rows, data.u)))
