"""Corrections of predictions by a site's own mean residual, which the site does not tell."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.protocol.rows import Rows

PEOPLE = 10.0
"""Number of people at which a correction is halved."""
STEPS = 8
"""Steps of Newton's method."""


def own_offset(residual: Float[Array, " n"], rows: Rows) -> Float[Array, ""]:
    """The site's mean residual, shrunk towards 0."""
    return jnp.sum(rows.present * residual) / (rows.present.sum() + PEOPLE)


def own_chances(chance: Float[Array, " n"], rows: Rows) -> Float[Array, " n"]:
    """Propensities whose log odds are moved by the mode of the site's offset under a normal prior."""
    start = jnp.log(chance) - jnp.log1p(-chance)
    penalty = 0.25 * PEOPLE  # of as many people with a propensity of one half

    def step(_: int, offset: Array) -> Array:
        rate = jax.nn.sigmoid(start + offset)
        score = rows.present @ (rows.treatment - rate) - penalty * offset
        return offset + jnp.clip(score / (rows.present @ (rate * (1.0 - rate)) + penalty), -1.0, 1.0)

    return jax.nn.sigmoid(start + jax.lax.fori_loop(0, STEPS, step, jnp.zeros(())))
