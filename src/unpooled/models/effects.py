"""Average treatment effects of a site under each draw: of its people, and of their population."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.disclosure.effective_people import enough
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, AverageEffects, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import ANY, Bounds, Stage

REVEALS = "draws of the average effect at this site, over its people and over their population"


BOOTSTRAP = "bootstrap"
"""Name of the random key from which people's weights, and values that are missing, are drawn."""


def averages(effects: Float[Array, "*k n"], rows: Rows, key: Array) -> dict[str, Float[Array, "*k"]]:
    """The average effects over the site's people and over their population, by Bayesian bootstrap weights."""
    weight = bootstrap_weights(key, rows, effects.shape[:-1])
    return {"sample": average(effects, rows.present, rows), "population": average(effects, weight, rows)}


def bootstrap_weights(key: Array, rows: Rows, draws: tuple[int, ...]) -> Float[Array, "*k n"]:
    """Exponential weights of the people for each draw; a person's do not depend on the padding."""
    people = rows.present.shape
    if not draws:
        return rows.present * jax.random.exponential(key, people)
    return rows.present * jax.vmap(lambda one: jax.random.exponential(one, people))(
        jax.random.split(key, *draws)
    )


def average(effects: Float[Array, "*k n"], weight: Float[Array, "*w n"], rows: Rows) -> Float[Array, "*k"]:
    """The weighted mean of the effects; with limits, close to their median if few people dominate it.

    A draw may be chosen so that only one person has an effect. The deviations from the median are therefore
    multiplied by `enough`, which is 1 if they rest on many people.
    """
    if not rows.least:
        return jnp.sum(effects * weight, axis=-1) / weight.sum(axis=-1)
    there = jnp.where(rows.present > 0.0, effects, jnp.nan)
    centre = jnp.nanmedian(there, axis=-1, keepdims=True)
    deviation = jnp.where(rows.present > 0.0, effects - centre, 0.0) * weight
    factor = enough(jnp.abs(deviation), rows.least)
    return centre[..., 0] + factor * deviation.sum(axis=-1) / weight.sum(axis=-1)


class EffectModel(Protocol):
    """A model of the effects of a site's people under one draw; `key` may be used to draw missing values."""

    def effect(self, draw: Arrays, rows: Rows, key: Array) -> Float[Array, "*k n"]:
        """The effects [n], or [k, n] for a bundle of draws."""
        ...

    def bounds(self) -> Bounds:
        """Bounds of the parameters of a draw."""
        ...


class AverageOfEffects(Stage):
    """A site's average treatment effects: of its people, and of the population they are a sample of."""

    model: EffectModel
    of_effects: ClassVar[bool] = True
    reveals: ClassVar[str] = REVEALS

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        draw = {**parameters.fixed, **parameters.per_site}
        key = rows.own_key(jax.random.wrap_key_data(draw.pop(BOOTSTRAP)))
        for_effects, for_weights = jax.random.split(key)
        return Statistics(per_site=averages(self.model.effect(draw, rows, for_effects), rows, for_weights))

    def bounds(self) -> Bounds:
        return {**self.model.bounds(), BOOTSTRAP: ANY}


def average_effects(reply: Statistics, shaped: Callable[[np.ndarray], np.ndarray]) -> AverageEffects:
    """The draws of a reply, each brought into the shape [K, site]."""
    return AverageEffects(*(shaped(np.asarray(reply.per_site[name])) for name in ("sample", "population")))
