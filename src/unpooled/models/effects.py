"""Stages that return a site's average treatment effect under each draw of the parameters."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.disclosure.effective_people import enough
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import ANY, Bounds, Stage

REVEALS = "draws of the average effect at this site"


class SampleAverage(Stage):
    """The sample average treatment effect: the effect averaged over the site's people.

    The model must provide ``effect(draw, rows)`` of shape [n], or [k, n] for a bundle of draws, and
    ``bounds()`` of the parameters of a draw.
    """

    model: Any
    reveals: ClassVar[str] = REVEALS

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        effect = self.model.effect({**parameters.fixed, **parameters.per_site}, rows)
        return Statistics(per_site={"effect": average(effect, rows.present, rows)})

    def bounds(self) -> Bounds:
        return self.model.bounds()


def average(effects: Float[Array, "*k n"], weight: Float[Array, " n"], rows: Rows) -> Float[Array, "*k"]:
    """The weighted mean of the effects; with limits, close to their median if few people dominate it.

    A draw may be chosen so that only one person has an effect. The deviations from the median are therefore
    multiplied by `enough`, which is 1 if they rest on many people.
    """

    def plain() -> Array:
        return effects @ weight / weight.sum()

    def with_limits() -> Array:
        there = jnp.where(rows.present > 0.0, effects, jnp.nan)
        centre = jnp.nanmedian(there, axis=-1, keepdims=True)
        deviation = jnp.where(rows.present > 0.0, effects - centre, 0.0) * weight
        factor = enough(jnp.abs(deviation), rows.least)
        return centre[..., 0] + factor * deviation.sum(axis=-1) / weight.sum()

    return jax.lax.cond(rows.least > 0.0, with_limits, plain)


class EffectModel(Protocol):
    """A model of the effects of a site's people under one draw; `key` may be used to draw missing values."""

    def effect(self, draw: Arrays, rows: Rows, key: Array) -> Float[Array, " n"]: ...

    def bounds(self) -> Bounds:
        """Bounds of the parameters of a draw."""
        ...


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
        return Statistics(per_site={"effect": average(effects, weight, rows)})

    def bounds(self) -> Bounds:
        return {**self.model.bounds(), "key": ANY}
