"""Algorithms 2 and 3: effects at a site, with the same draw of the weights for both arms and all sites."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.methods.causal_fi.paper.model import BOUNDS, NetworkModel
from unpooled.models.outcome_family import individual_effect
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds

PEOPLE = 128
"""Number of people in a vectorised batch."""


class NetworkAveragedOutcomes(eqx.Module):
    """As `unpooled.methods.causal_fi.effects.AveragedOutcomes`, with the networks."""

    model: NetworkModel
    completed: bool = eqx.field(static=True)

    def bounds(self) -> Bounds:
        return BOUNDS

    def outcomes(self, draw: Arrays, rows: Rows, key: Array) -> Float[Array, "n 2"]:
        return self.model.outcomes(draw["outcome"], rows.covariates, self._filled(draw, rows, key))

    def _filled(self, draw: Arrays, rows: Rows, key: Array) -> Float[Array, "n u"]:
        if self.completed:
            return self.model.completed(draw["imputation"], rows, key)
        outputs = self.model.given_shown(draw["confounders"], rows.covariates, rows.incomplete, rows.seen)
        return self.model.entries.fill(outputs, rows.incomplete, rows.seen, key)


def _key(draw: Arrays, rows: Rows) -> Array:
    return rows.own_key(jax.random.wrap_key_data(draw["key"]))


def conditional(model: NetworkModel, draws: Arrays, people: Rows, imputations: int) -> np.ndarray:
    """Draws of τ(x, u_seen) [K, people], averaged over imputations given the observed values only."""
    return np.asarray(_conditional(model, draws, people, imputations))


@eqx.filter_jit
def _conditional(model: NetworkModel, draws: Arrays, people: Rows, imputations: int) -> Float[Array, "k n"]:
    def under(draw: Arrays) -> Float[Array, " n"]:
        keys = jax.random.split(jax.random.fold_in(_key(draw, people), 1), len(people.present))

        def of(person: tuple[Array, ...]) -> Float[Array, ""]:
            x, u, seen, key = (jnp.broadcast_to(part, (imputations, *part.shape)) for part in person)
            outputs = model.given_shown(draw["confounders"], x[:1], u[:1], seen[:1])
            many = jnp.broadcast_to(outputs, (imputations, outputs.shape[1]))
            return jnp.mean(model.effect(draw["outcome"], x, model.entries.fill(many, u, seen, key[0])))

        # Batches of people within a loop over draws limit the memory use.
        everybody = (people.covariates, people.incomplete, people.seen, keys)
        return jax.lax.map(of, everybody, batch_size=PEOPLE)

    return jax.lax.map(under, draws)


def individual(model: NetworkModel, draws: Arrays, people: Rows, correlation: float) -> np.ndarray:
    """ITE draws [K, people]: u is imputed given treatment and outcome, then the other arm is drawn."""
    return np.asarray(_individual(model, draws, people, jnp.asarray(correlation)))


@eqx.filter_jit
def _individual(model: NetworkModel, draws: Arrays, people: Rows, correlation: Array) -> Float[Array, "k n"]:
    def under(draw: Arrays) -> Float[Array, " n"]:
        for_u, for_outcome = jax.random.split(jax.random.fold_in(_key(draw, people), 2))
        u = model.completed(draw["imputation"], people, for_u)
        both = model.predictors(draw["outcome"], people.covariates, u)
        noise = jnp.exp(2.0 * draw["outcome"]["log_noise"]) if model.family.learns_noise else jnp.ones(2)
        return individual_effect(model.family, both, noise, people, correlation, for_outcome)

    return jax.lax.map(under, draws)
