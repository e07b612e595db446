"""Effects beside the rows, under draws of the parameters and of what is missing."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.methods.causal_fi.families import individual_effect
from unpooled.methods.causal_fi.model import Model
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage


class AverageEffect(Stage):
    """The site's ATE under each draw, over people completed given their own treatment and outcome.

    Given x and what is seen of u alone, the average is biased where holes depend on the outcome. People weigh
    as a Bayesian bootstrap has it, so that the draws are of the population's ATE.
    """

    model: Model
    completed: bool = eqx.field(static=True)
    """Or else given x and what is seen alone."""
    reveals: ClassVar[str] = "draws of the average effect at this site"

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        draw = {**parameters.fixed, **parameters.per_site}
        key = jax.random.fold_in(jax.random.wrap_key_data(draw["key"]), rows.site)
        for_u, for_weights = jax.random.split(key)
        effects = (
            self._completed(draw, rows, for_u) if self.completed else _given_seen(self.model, draw, rows)
        )
        weight = rows.present * jax.random.exponential(for_weights, rows.present.shape)
        return Statistics(per_site={"effect": effects @ weight / weight.sum()})

    def _completed(self, draw: Arrays, rows: Rows, key: Array) -> Float[Array, " n"]:
        family = self.model.family
        arms = family.mean(self.model.arms(draw, rows, self.model.completed(draw, rows, key).felt))
        return family.standardised(arms[:, 1] - arms[:, 0])


def _given_seen(model: Model, draw: Arrays, people: Rows) -> Float[Array, " n"]:
    """τ(x, u_seen): averaged over what is missing, given what is seen alone."""
    control, treated = (jnp.full(len(people.present), arm) for arm in (0, 1))
    difference = model.expected(draw, people, treated) - model.expected(draw, people, control)
    return model.family.standardised(difference)


def conditional(model: Model, draws: Arrays, people: Rows) -> np.ndarray:
    """τ(x, u_seen) [K, people]."""
    return np.asarray(_conditional(model, draws, people))


@eqx.filter_jit
def _conditional(model: Model, draws: Arrays, people: Rows) -> Float[Array, "k n"]:
    return jax.lax.map(lambda draw: _given_seen(model, draw, people), draws)


def individual(model: Model, draws: Arrays, people: Rows, correlation: float) -> np.ndarray:
    """ITE draws [K, people] given a person's treatment and outcome: u once per draw, then the other arm."""
    return np.asarray(_individual(model, draws, people, jnp.asarray(correlation)))


@eqx.filter_jit
def _individual(model: Model, draws: Arrays, people: Rows, correlation: Array) -> Float[Array, "k n"]:
    def one(draw: Arrays) -> Array:
        key = jax.random.fold_in(jax.random.wrap_key_data(draw["key"]), people.site)
        for_u, for_noise = jax.random.split(jax.random.fold_in(key, 2))
        both = model.arms(draw, people, model.completed(draw, people, for_u).felt)
        return individual_effect(model.family, both, draw["noise"], people, correlation, for_noise)

    return jax.lax.map(one, draws)
