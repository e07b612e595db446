"""Effects at a site, under draws of the parameters and of the missing confounders."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths.compilation import Program
from unpooled.methods.causal_fi.model import BOUNDS, ImputationModel
from unpooled.models.outcome_family import individual_effect
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds


class AveragedOutcomes(eqx.Module):
    """The outcomes of people whose averages are the site's mean outcomes.

    With `completed`, missing confounders are drawn given a person's own treatment and outcome. Otherwise
    they are averaged given x and the observed confounders only, which biases the averages if missingness
    depends on the outcome.
    """

    model: ImputationModel
    completed: bool = eqx.field(static=True)

    def bounds(self) -> Bounds:
        return BOUNDS

    def outcomes(self, draw: Arrays, rows: Rows, key: Array) -> Float[Array, "n 2"]:
        if not self.completed:
            return _given_observed(self.model, draw, rows)
        family = self.model.family
        arms = family.mean(self.model.arms(draw, rows, self.model.completed(draw, rows, key).shifted))
        return family.standardised_mean(arms)


def _given_observed(model: ImputationModel, draw: Arrays, people: Rows) -> Float[Array, "n 2"]:
    """E[Y | x, u_seen] in both arms: averaged over the missing values given x and the observed ones."""
    arms = (jnp.full(len(people.present), arm) for arm in (0, 1))
    both = jnp.stack([model.expected(draw, people, arm) for arm in arms], axis=1)
    return model.family.standardised_mean(both)


def conditional(model: ImputationModel, draws: Arrays, people: Rows) -> np.ndarray:
    """Draws of τ(x, u_seen) [K, people]."""
    return np.asarray(_conditional(model, draws, people))


@Program
def _conditional(model: ImputationModel, draws: Arrays, people: Rows) -> Float[Array, "k n"]:
    both = jax.lax.map(lambda draw: _given_observed(model, draw, people), draws)
    return both[..., 1] - both[..., 0]


def individual(model: ImputationModel, draws: Arrays, people: Rows, correlation: float) -> np.ndarray:
    """ITE draws [K, people]: u is imputed given treatment and outcome, then the other arm is drawn."""
    return np.asarray(_individual(model, draws, people, jnp.asarray(correlation)))


@Program
def _individual(
    model: ImputationModel, draws: Arrays, people: Rows, correlation: Array
) -> Float[Array, "k n"]:
    def one(draw: Arrays) -> Array:
        key = people.own_key(jax.random.wrap_key_data(draw["key"]))
        for_u, for_noise = jax.random.split(jax.random.fold_in(key, 2))
        both = model.arms(draw, people, model.completed(draw, people, for_u).shifted)
        return individual_effect(model.family, both, draw["noise"], people, correlation, for_noise)

    return jax.lax.map(one, draws)
