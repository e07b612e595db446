"""Ways to complete everybody that x and what is seen allow: fillings of the levels, each with its numbers.

The fillings are drawn by uniform numbers spread evenly, so what is likely is certain to be among them.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.maths.normal import given_seen
from unpooled.methods.causal_fi import levels
from unpooled.methods.causal_fi.columns import Layout
from unpooled.protocol.messages import Tree
from unpooled.protocol.rows import Rows


class Open(NamedTuple):
    """Ways to complete every person under one draw of p(u | x): numbers are centre + root·ε."""

    u: Float[Array, "i n u"]
    """Levels filled, numbers at their centre."""
    log_weight: Float[Array, "i n"]
    left: Float[Array, "i n"]
    root: Float[Array, "n u v"]


def open_up(
    layout: Layout, confounders: Tree, rows: Rows, spots: Float[Array, "i n"], shift: Array | None
) -> Open:
    """A way for every spot between 0 and 1."""
    levelled, numbers = layout.levelled, layout.numbers
    seen, values = rows.seen[:, numbers], rows.incomplete[:, numbers]
    given = given_seen(confounders["covariance"], seen)

    def way(spot: Array) -> tuple[Array, Array, Array]:
        level = levels.fill(layout, confounders["steps"], rows, spot, shift)
        known = jnp.concatenate([rows.covariates, level.features], axis=1)
        mean = confounders["intercept"] + known @ confounders["slopes"]
        beyond = seen * (values - mean)
        missing = mean + jnp.einsum("nij,nj->ni", given.regression, beyond)
        # How likely the numbers seen are by these levels.
        surprise = jnp.einsum("ni,nij,nj->n", beyond, given.precision, beyond)
        u = jnp.zeros_like(rows.incomplete).at[:, levelled].set(level.features)
        u = u.at[:, numbers].set(jnp.where(seen > 0.0, values, missing))
        return u, level.log_weight - 0.5 * surprise, level.left

    root = jnp.zeros((len(seen), rows.incomplete.shape[1], len(numbers))).at[:, numbers].set(given.root)
    return Open(*jax.vmap(way)(spots), root)


def shift_of(draw: Tree, rows: Rows) -> Float[Array, "n u"] | None:
    """How much more than at random everybody's missing values are, by arm; None where they are at random."""
    if "shift" not in draw:
        return None
    return draw["shift"][rows.treatment.astype(int)] * (1.0 - rows.seen)


def on_numbers(layout: Layout, shift: Float[Array, "n u"]) -> Float[Array, "n u"]:
    """Numbers that are missing are felt to be larger by so much; levels are drawn so."""
    return jnp.zeros_like(shift).at[:, layout.numbers].set(shift[:, layout.numbers])
