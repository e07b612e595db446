"""How many people a sum rests on, and how sums that rest on too few are kept back.

A sum over people is dominated by one person if that person contributes a large share of it. If the largest
share is 1/r, the sum rests on r effective people: r is at most the number of people, and r = 1 means that the
sum is one person's value. This dominance rule of official statistics is stricter than Kish's effective size,
(Σv)²/Σv², which is never smaller than r.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

TINY = 1e-12
"""A contribution below this share of the scale of a feature counts as none."""


def effective_people(contributions: Float[Array, "*k n"]) -> Float[Array, "*k"]:
    """Σv / max v along the last axis, for contributions v ≥ 0; 0 if nobody contributes.

    >>> effective_people(jnp.array([[1.0, 1.0, 1.0, 1.0], [8.0, 1.0, 1.0, 0.0]])).tolist()
    [4.0, 1.25]
    """
    largest = jnp.max(contributions, axis=-1)
    return jnp.sum(contributions, axis=-1) / jnp.where(largest > TINY, largest, jnp.inf)


def enough(contributions: Float[Array, "*k n"], least: float) -> Float[Array, "*k"]:
    """The factor by which to multiply what is summed: 0 if it rests on `least` people or fewer, else up to 1.

    The factor rises linearly and reaches 1 at twice as many people, so that an optimiser sees no jump. It is
    1 everywhere if `least` is 0.

    >>> enough(jnp.ones((1, 4)), 4.0).tolist(), enough(jnp.ones((1, 6)), 4.0).tolist()
    ([0.0], [0.5])
    """
    if not least:
        return jnp.ones(contributions.shape[:-1])
    people = effective_people(contributions)
    # The derivative of the factor would be that of one person, who has the largest contribution.
    return jax.lax.stop_gradient(jnp.clip(people / max(least, 1.0) - 1.0, 0.0, 1.0))


STEPS = 40
"""Halvings of the interval that holds a cap."""


def capped(values: Float[Array, "*k n"], least: float) -> Float[Array, "*k n"]:
    """Values v ≥ 0 capped at the largest c for which Σv²/max v² exceeds `least`; unchanged if `least` is 0.

    If `least` people or fewer have a value above 0, all become 0.

    >>> capped(jnp.array([[9.0, 1.0, 1.0, 1.0, 1.0]]), 2.0).round(2).tolist()
    [[2.0, 1.0, 1.0, 1.0, 1.0]]
    """
    if not least:
        return values

    def people(cap: Array) -> Array:
        below = jnp.minimum(values, cap[..., None])
        return jnp.sum(below**2, axis=-1) / jnp.maximum(jnp.max(below, axis=-1) ** 2, TINY**2)

    def halve(_: int, interval: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = interval
        middle = 0.5 * (low + high)
        enough_people = people(middle) > least
        return jnp.where(enough_people, middle, low), jnp.where(enough_people, high, middle)

    highest = jnp.max(values, axis=-1)
    low, _ = jax.lax.fori_loop(0, STEPS, halve, (jnp.zeros_like(highest), highest))
    return jnp.minimum(values, jnp.where(people(highest) > least, highest, low)[..., None])


def spread_out(
    values: Float[Array, "*k n"], present: Float[Array, " n"], least: float
) -> Float[Array, "*k n"]:
    """Values whose deviations from their median are capped, so that no sum of them rests on few people.

    A deviation counts `present` times: people's weights if the values are summed, and the roots of their
    weights if it is the squares. It is 0 for people who are not summed.
    """
    if not least:
        return values
    centre = jnp.nanmedian(jnp.where(present > 0.0, values, jnp.nan), axis=-1, keepdims=True)
    centre = jnp.where(jnp.any(present > 0.0), centre, 0.0)  # an arm may be empty
    counted = jnp.where(present > 0.0, present * (values - centre), 0.0)
    return centre + jnp.sign(counted) * capped(jnp.abs(counted), least) / jnp.where(
        present > 0.0, present, 1.0
    )
