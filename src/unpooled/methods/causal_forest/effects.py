"""Conditional and individual effects at a site, by the forests.

The effect of a person is Σ num/Σ den over the leaves they are in, of all trees. The trees of a bag share a
random half of the people; how far the bags are apart is the sampling error of their mean (Sexton and Laake
2009; Athey, Tibshirani and Wager 2019), once the noise of so few trees in a bag is taken off. Draws are
random combinations of the bags' deviations, so that people who are alike vary together.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unpooled.maths.compilation import Program
from unpooled.maths.trees import leaves
from unpooled.methods.causal_forest.settings import BAG
from unpooled.methods.causal_forest.stages import EDGE, arm_means, nuisance
from unpooled.models.outcome_family import Family, possible
from unpooled.models.other_arm import other_arm
from unpooled.models.trees import Trees, bins_of
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows

FEWEST = 0.1
"""The variance between bags is at least this share of what it is before the trees' noise is taken off."""


class Sizes(NamedTuple):
    """Numbers of trees."""

    trees: int
    nuisance: int


def conditional(family: Family, sizes: Sizes, draws: Arrays, people: Rows) -> np.ndarray:
    """CATE draws [K, people]; nobody's is impossible."""
    means = arm_draws(family, sizes, draws, people)
    return means[..., 1] - means[..., 0]


def arm_draws(family: Family, sizes: Sizes, draws: Arrays, people: Rows) -> np.ndarray:
    """Draws [K, people, 2] of the mean outcome in both arms."""
    return np.asarray(_arm_draws(sizes, family, _forests(draws), draws["normals"], people))


def individual(family: Family, sizes: Sizes, draws: Arrays, people: Rows, seed: int) -> np.ndarray:
    """ITE draws (2w − 1)(y − y_mis) [K, people], with y_mis drawn about the mean of the other arm."""
    return other_arm(family, arm_draws(family, sizes, draws, people), draws["noise"], people, seed)


def _forests(draws: Arrays) -> Arrays:
    """The forests, of the only question by which they were found."""
    forests = {name: draws[name] for name in ("edges", "treatment", "outcome", "effect")}
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], forests)


def _arm_draws(
    sizes: Sizes, family: Family, forests: Arrays, normals: Array, people: Rows
) -> Float[Array, "k n 2"]:
    bins = bins_of(forests, people)
    chance, mean = (nuisance(forests[name], sizes.nuisance, bins, people) for name in ("treatment", "outcome"))
    effect, deviation = _effects(Trees(forests["effect"], sizes.trees), bins)
    drawn = effect + normals @ deviation
    chance = jnp.clip(chance, EDGE, 1.0 - EDGE)
    return possible(family, jnp.moveaxis(jax.vmap(lambda one: arm_means(chance, mean, one))(drawn), 1, 2))


_arm_draws = Program(_arm_draws, static_argnums=0)


def _effects(
    shape: Trees, bins: Int[Array, "n d"]
) -> tuple[Float[Array, " n"], Float[Array, "b n"]]:
    """Everybody's effect, and deviations of the bags, whose sum of squares is its variance."""
    values = jnp.stack([shape.leaf("num"), shape.leaf("den")], axis=2)
    each = jax.vmap(lambda tree, leaf: leaf[leaves(tree, bins)])(shape.tree, values)
    num, den = each.mean(axis=0).T
    known = jnp.where(den > 0.0, den, jnp.inf)
    effect = num / known
    apart = ((each[..., 0] - effect * each[..., 1]) / known).reshape(-1, BAG, len(bins))
    bags = apart.mean(axis=1)
    between = jnp.mean(bags**2, axis=0)
    within = jnp.mean(apart.var(axis=1, ddof=1), axis=0) / BAG
    share = jnp.clip(1.0 - within / jnp.where(between > 0.0, between, 1.0), FEWEST, 1.0)
    return effect, bags * jnp.sqrt(share / len(bags))
