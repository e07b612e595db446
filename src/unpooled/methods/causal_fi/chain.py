"""Where a chain of draws stands, and where it begins."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from unpooled.methods.causal_fi.columns import Layout
from unpooled.methods.causal_fi.families import Family
from unpooled.methods.causal_fi.levels import allowed
from unpooled.methods.causal_fi.structures import EXPECTED, SLOPES
from unpooled.protocol.records import Arrays

OFFSET, SLOPE = 0.003, 0.3
"""Expected variances: of a site's offset, of a slope of a probit."""


class Chain(NamedTuple):
    """Where a chain stands. Of the outcome both the draw, and the mode about which the model is linear."""

    confounders: Arrays
    treatment: Float[Array, " p"]
    spreads: Float[Array, " k"]
    """Variances of the slopes of the treatment's probit, and of each step's."""
    outcome: Float[Array, "2 b"]
    mode: Float[Array, "2 b"]
    bend: Float[Array, " 2"]
    offset: Float[Array, "m 2"]
    mode_offset: Float[Array, "m 2"]
    noise: Float[Array, " 2"]
    variances: Float[Array, "2 g"]
    common: Float[Array, ""]
    """Variance of what the slopes of both arms have in common."""
    site: Float[Array, " 2"]


class Setting(eqx.Module):
    """What all chains of a structure share."""

    layout: Layout
    family: Family
    groups: Int[Array, " b"]
    """Names the variance of each coefficient of the outcome."""
    several: bool = eqx.field(static=True)
    """Whether there are sites to differ."""


class Sizes(NamedTuple):
    """How many covariates, features of incomplete confounders, and sites."""

    covariates: int
    incomplete: int
    sites: int

    @property
    def all(self) -> int:
        return 1 + self.covariates + self.incomplete


def begin(sizes: Sizes, layout: Layout, family: Family) -> Chain:
    """Nothing known, and a linear outcome."""
    outcome = jnp.zeros((2, sizes.all)).at[:, 0].set(family.start())
    offsets, numbers = jnp.zeros((sizes.sites, 2)), len(layout.numbers)
    steps = allowed(layout, sizes.covariates).shape
    return Chain(
        confounders={
            "steps": jnp.zeros(steps),
            "intercept": jnp.zeros(numbers),
            "slopes": jnp.zeros((sizes.covariates + len(layout.levelled), numbers)),
            "covariance": jnp.eye(numbers),
        },
        treatment=jnp.zeros(sizes.all),
        spreads=jnp.full(1 + steps[0], SLOPE),
        outcome=outcome,
        mode=outcome,
        bend=jnp.ones(2),
        offset=offsets,
        mode_offset=offsets,
        noise=jnp.ones(2),
        variances=jnp.tile(jnp.asarray(EXPECTED), (2, 1)),
        common=jnp.asarray(EXPECTED[SLOPES]),
        site=jnp.full(2, OFFSET),
    )
