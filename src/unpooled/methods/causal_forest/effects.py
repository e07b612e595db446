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
from jaxtyping import Array, Float

from unpooled.maths.compilation import Program
from unpooled.methods.causal_forest.settings import BAG
from unpooled.methods.causal_forest.stages import EDGE, arm_means, effects_by_bag, nuisance
from unpooled.models.other_arm import other_arm
from unpooled.models.outcome_family import Family, possible
from unpooled.models.trees import Trees, bins_of
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows

TREES_ELSEWHERE = (
    "The population's outcomes follow the trees, which are the same at every site. Nothing corrects an error "
    "of the trees: the estimate is not doubly robust elsewhere, and its interval does not cover differences "
    "between sites."
)
"""What effects of trees elsewhere assume, in words."""


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
    return np.asarray(_arm_draws_program(sizes, family, _forests(draws), draws["normals"], people))


def individual(family: Family, sizes: Sizes, draws: Arrays, people: Rows, seed: int) -> np.ndarray:
    """ITE draws (2w − 1)(y − y_mis) [K, people], with y_mis drawn about the mean of the other arm."""
    return other_arm(family, arm_draws(family, sizes, draws, people), draws["noise"], people, seed)


def _forests(draws: Arrays) -> Arrays:
    """The forests, of the only question by which they were found."""
    forests = {name: draws[name] for name in ("edges", "treatment", "outcome", "effect")}
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], forests)


def arms_of(family: Family, trees: int, draws: Arrays, effects: np.ndarray, people: Rows) -> np.ndarray:
    """Draws [K, people, 2] of the mean outcome in both arms, from draws [K, people] of effects and forests
    with this number of trees for what the arms have in common."""
    return np.asarray(_arms_of_program(trees, family, _forests(draws), effects, people))


def _arms_of(
    trees: int, family: Family, forests: Arrays, effects: Array, people: Rows
) -> Float[Array, "k n 2"]:
    bins = bins_of(forests, people)
    chance, mean = (nuisance(forests[name], trees, bins, people) for name in ("treatment", "outcome"))
    chance = jnp.clip(chance, EDGE, 1.0 - EDGE)
    return possible(family, jnp.moveaxis(jax.vmap(lambda one: arm_means(chance, mean, one))(effects), 1, 2))


def _arm_draws(
    sizes: Sizes, family: Family, forests: Arrays, normals: Array, people: Rows
) -> Float[Array, "k n 2"]:
    everybody = jnp.ones((sizes.trees // BAG, len(people.present)))
    shape = Trees(forests["effect"], sizes.trees)
    effect, deviation = effects_by_bag(shape, bins_of(forests, people), everybody)
    return _arms_of(sizes.nuisance, family, forests, effect + normals @ deviation, people)


_arm_draws_program = Program(_arm_draws, static_argnums=0)
_arms_of_program = Program(_arms_of, static_argnums=0)
