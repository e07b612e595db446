"""Stages that return a site's average treatment effect under each draw of the parameters."""

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
    """The sample average treatment effect: the effect averaged over the site's people.

    The model must provide ``effect(draw, rows)`` of shape [n], or [k, n] for a bundle of draws.
    """

    model: Any
    reveals: ClassVar[str] = REVEALS

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        effect = self.model.effect({**parameters.fixed, **parameters.per_site}, rows)
        return Statistics(per_site={"effect": effect @ rows.present / jnp.sum(rows.present)})


class EffectModel(Protocol):
    """A model of the effects of a site's people under one draw; `key` may be used to draw missing values."""

    def effect(self, draw: Arrays, rows: Rows, key: Array) -> Float[Array, " n"]: ...


class PopulationAverage(Stage):
    """The population average treatment effect: the effect averaged with Bayesian bootstrap weights."""

    model: EffectModel
    reveals: ClassVar[str] = REVEALS

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        draw = {**parameters.fixed, **parameters.per_site}
        key = jax.random.fold_in(jax.random.wrap_key_data(draw["key"]), rows.salt)
        for_effects, for_weights = jax.random.split(key)
        effects = self.model.effect(draw, rows, for_effects)
        weight = rows.present * jax.random.exponential(for_weights, rows.present.shape)
        return Statistics(per_site={"effect": effects @ weight / weight.sum()})
