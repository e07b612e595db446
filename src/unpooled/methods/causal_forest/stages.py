"""Causal forests at the sites: what the trees are grown from, and doubly robust scores by their predictions.

Predictions for the site's own people are out of bag: by trees in whose half of the people they are not. With
e the propensity and m the mean outcome given the covariates, people count by the gradient of the R-loss (Nie
and Wager 2021), Σ ((y − m) − (w − e)τ)²: num = (w − e)(y − m), den = (w − e)², and τ = num/den in a leaf.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from unpooled.maths.trees import leaves
from unpooled.methods.aipw.stages import Nuisances, ScoresAndNoise
from unpooled.methods.causal_forest.settings import BAG
from unpooled.models.held_out_effects import HeldOutEffects, Predicted
from unpooled.models.outcome_family import Family, Gaussian, possible
from unpooled.models.site_offsets import own_chances, own_offset
from unpooled.models.trees import TREES, Target, Trees, bins_of, drawn, hashed, votes
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import LINEAR, Bounds

FOREST: Bounds = {**TREES, "value": LINEAR, "num": LINEAR, "den": (0.0, 100.0), "known": (0.0, 1.0)}
"""Bounds of what describes forests and their leaves."""
FEWEST = 0.1
"""The variance between bags is at least this share of what it is before the trees' noise is taken off."""
EDGE = 0.02
"""Propensities are kept this far from 0 and 1 where they centre the treatment."""


class Treatment(Target):
    """The propensity: num is the treatment."""

    def prepared(self, parameters: Parameters, rows: Rows, bins: Array) -> Arrays:
        return {"num": rows.treatment, "people": hashed(rows), "key": parameters.fixed["key"]}

    def of_tree(self, prepared: Arrays, number: Array, rows: Rows) -> Float[Array, "n 2"]:
        used = rows.present * in_bag(prepared["key"], rows, prepared["people"], number)
        return jnp.stack([used * prepared["num"], used], axis=1)


class Outcome(Treatment):
    """The mean outcome given the covariates, over both arms."""

    def prepared(self, parameters: Parameters, rows: Rows, bins: Array) -> Arrays:
        return {**super().prepared(parameters, rows, bins), "num": rows.outcome}


class Effect(Target):
    """The effect of the treatment, from centred treatments and outcomes."""

    nuisance_trees: int = eqx.field(static=True)
    offsets: bool = eqx.field(static=True)
    honest: bool = eqx.field(static=True)
    """Whether the sums are of the people by whom a tree is not grown."""

    def prepared(self, parameters: Parameters, rows: Rows, bins: Int[Array, "n d"]) -> Arrays:
        fixed, people = parameters.fixed, hashed(rows)
        found = centred(fixed, rows, bins, people, self.nuisance_trees, offsets=self.offsets)
        treatment, outcome = rows.treatment - found["chance"], rows.outcome - found["mean"]
        return {
            "num": rows.present * treatment * outcome,
            "den": rows.present * treatment**2,
            "people": people,
            "key": fixed["key"],
        }

    def of_tree(self, prepared: Arrays, number: Array, rows: Rows) -> Float[Array, "n 2"]:
        key, people = prepared["key"], prepared["people"]
        used = in_bag(key, rows, people, number // BAG)
        growing = drawn(key, rows, people, number + SECOND) < 0.5
        used = used * (~growing if self.honest else growing)
        return jnp.stack([used * prepared["num"], used * prepared["den"]], axis=1)

    def bounds(self) -> Bounds:
        return FOREST


SECOND = 1_000_000
"""Numbers of the draws of who grows a tree of a bag begin here; those of who is in a bag, at 0."""


def in_bag(key: Array, rows: Rows, people: Array, number: Array) -> Float[Array, " n"]:
    """1 for the half of the people who are in a bag, by its number."""
    return (drawn(key, rows, people, number) < 0.5).astype(float)


def nuisance(
    forest: Arrays, trees: int, bins: Int[Array, "n d"], rows: Rows, people: Array | None = None
) -> Float[Array, " n"]:
    """Mean over the trees; for the site's own `people`, over those in which they are not."""
    shape = Trees(forest, trees)
    both = jnp.stack([shape.leaf("value"), jnp.ones((trees, shape.leaves))], axis=2)

    def everybody(number: Array) -> Array:
        return jnp.ones(len(bins))

    def outside(number: Array) -> Array:
        assert people is not None
        return 1.0 - in_bag(forest["key"], rows, people, number)

    total = votes(shape.tree, both, bins, everybody if people is None else outside)
    return total[:, 0] / jnp.maximum(total[:, 1], 1.0)


def centred(
    fixed: Arrays, rows: Rows, bins: Int[Array, "n d"], people: Array, trees: int, *, offsets: bool
) -> Arrays:
    """Everybody's propensity and mean outcome by trees in which they are not, corrected for the site."""
    chance, mean = (nuisance(fixed[name], trees, bins, rows, people) for name in ("treatment", "outcome"))
    chance = jnp.clip(chance, EDGE, 1.0 - EDGE)
    if not offsets:
        return {"chance": chance, "mean": mean}
    return {"chance": own_chances(chance, rows), "mean": mean + own_offset(rows.outcome - mean, rows)}


class ForestScores(ScoresAndNoise):
    """Doubly robust scores of the average effect, by the forests."""

    trees: int = eqx.field(static=True, default=0)
    nuisance_trees: int = eqx.field(static=True, default=0)
    offsets: bool = eqx.field(static=True, default=True)
    family: Family = Gaussian()
    by_fold: ClassVar[bool] = False
    reveals: ClassVar[str] = ScoresAndNoise.reveals

    def predicted(self, parameters: Parameters, rows: Rows) -> Nuisances:
        fixed, people, bins = parameters.fixed, hashed(rows), bins_of(parameters.fixed, rows)
        found = centred(fixed, rows, bins, people, self.nuisance_trees, offsets=self.offsets)
        effect = own_effects(fixed["effect"], self.trees, bins, rows, people).effect
        means = possible(self.family, arm_means(found["chance"], found["mean"], effect))
        chance = jnp.clip(found["chance"], self.trim, 1.0 - self.trim)
        return Nuisances(chance, (found["chance"] < self.trim) | (found["chance"] > 1.0 - self.trim), means)

    def bounds(self) -> Bounds:
        return FOREST


def own_effects(forest: Arrays, trees: int, bins: Int[Array, "n d"], rows: Rows, people: Array) -> Predicted:
    """Effects of the site's own people by trees in whose bag they are not, with their variances."""

    def outside(number: Array) -> Array:
        return 1.0 - in_bag(forest["key"], rows, people, number)

    used = jax.vmap(outside)(jnp.arange(trees // BAG))
    effect, deviation = effects_by_bag(Trees(forest, trees), bins, used)
    return Predicted(effect, jnp.sum(deviation**2, axis=0))


def effects_by_bag(
    shape: Trees, bins: Int[Array, "n d"], used: Float[Array, "b n"]
) -> tuple[Float[Array, " n"], Float[Array, "b n"]]:
    """Everybody's effect Σ num/Σ den by the bags that are used, and deviations of the bags, whose sum of
    squares is its variance. The noise of so few trees in a bag is taken off."""
    values = jnp.stack([shape.leaf("num"), shape.leaf("den")], axis=2)
    each = jax.vmap(lambda tree, leaf: leaf[leaves(tree, bins)])(shape.tree, values)
    by_bag = each.reshape(-1, BAG, *each.shape[1:])
    count = jnp.maximum(used.sum(axis=0), 1.0)
    num, den = jnp.einsum("bn,bnv->vn", used, by_bag.mean(axis=1)) / count
    known = jnp.where(den > 0.0, den, jnp.inf)
    effect = num / known
    apart = (by_bag[..., 0] - effect * by_bag[..., 1]) / known
    bags = used * apart.mean(axis=1)
    between = jnp.sum(bags**2, axis=0) / count
    within = jnp.einsum("bn,bn->n", used, apart.var(axis=1, ddof=1)) / count / BAG
    share = jnp.clip(1.0 - within / jnp.where(between > 0.0, between, 1.0), FEWEST, 1.0)
    return effect, bags * jnp.sqrt(share / count)


class ForestEffects(HeldOutEffects):
    """Effects of the forest, out of bag."""

    trees: int = eqx.field(static=True)

    def predicted(self, parameters: Parameters, rows: Rows) -> Predicted:
        fixed = parameters.fixed
        return own_effects(fixed["effect"], self.trees, bins_of(fixed, rows), rows, hashed(rows))

    def bounds(self) -> Bounds:
        return FOREST


def arm_means(chance: Array, mean: Array, effect: Array) -> Float[Array, "2 n"]:
    """The mean outcome in both arms."""
    return jnp.stack([mean - chance * effect, mean + (1.0 - chance) * effect])
