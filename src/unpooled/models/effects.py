"""A site's average effect under each draw of the parameters."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage

REVEALS = "draws of the average effect at this site"


class SampleAverage(Stage):
    """The effect averaged over the site's people: the average effect of the sample.

    The model has ``effect(draw, rows)`` [n], or [k, n] for a bundle of draws.
    """

    model: Any
    reveals: ClassVar[str] = REVEALS

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        effect = self.model.effect({**parameters.fixed, **parameters.per_site}, rows)
        return Statistics(per_site={"effect": effect @ rows.present / jnp.sum(rows.present)})


class EffectModel(Protocol):
    """Effects of a site's people under one draw, which may draw missing values by the key."""

    def effect(self, draw: Arrays, rows: Rows, key: Array) -> Float[Array, " n"]: ...


class PopulationAverage(Stage):
    """The effect averaged with the weights of a Bayesian bootstrap: the average effect of the population."""

    model: EffectModel
    reveals: ClassVar[str] = REVEALS

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        draw = {**parameters.fixed, **parameters.per_site}
        key = jax.random.fold_in(jax.random.wrap_key_data(draw["key"]), rows.site)
        for_effects, for_weights = jax.random.split(key)
        effects = self.model.effect(draw, rows, for_effects)
        weight = rows.present * jax.random.exponential(for_weights, rows.present.shape)
        return Statistics(per_site={"effect": effects @ weight / weight.sum()})
