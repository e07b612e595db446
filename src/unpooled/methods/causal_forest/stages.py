"""Causal forests at the sites: what the trees are grown from, and doubly robust scores by their predictions.

Predictions for the site's own people are out of bag: by trees in whose half of the people they are not. With
e the propensity and m the mean outcome given the covariates, people count by the gradient of the R-loss (Nie
and Wager 2021), Σ ((y − m) − (w − e)τ)²: num = (w − e)(y − m), den = (w − e)², and τ = num/den in a leaf.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from unpooled.disclosure.effective_people import spread_out
from unpooled.methods.aipw.stages import DoublyRobust, Predicted
from unpooled.methods.causal_forest.settings import BAG
from unpooled.models.outcome_family import Family, Gaussian, possible
from unpooled.models.site_offsets import own_chances, own_offset
from unpooled.models.trees import TREES, Target, Trees, bins_of, drawn, hashed, votes
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import LINEAR, Bounds

FOREST: Bounds = {**TREES, "value": LINEAR, "num": LINEAR, "den": (0.0, 100.0), "known": (0.0, 1.0)}
"""Bounds of what describes forests and their leaves."""
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


class ForestScores(DoublyRobust):
    """Doubly robust scores of the average effect, by the forests."""

    trees: int = eqx.field(static=True, default=0)
    nuisance_trees: int = eqx.field(static=True, default=0)
    offsets: bool = eqx.field(static=True, default=True)
    family: Family = Gaussian()
    by_fold: ClassVar[bool] = False
    in_batches: ClassVar[bool] = False
    reveals: ClassVar[str] = f"{DoublyRobust.reveals}, and of their squared residuals"

    def predicted(self, parameters: Parameters, rows: Rows) -> Predicted:
        fixed, people, bins = parameters.fixed, hashed(rows), bins_of(parameters.fixed, rows)
        found = centred(fixed, rows, bins, people, self.nuisance_trees, offsets=self.offsets)
        effect = own_effects(fixed["effect"], self.trees, bins, rows, people)
        means = possible(self.family, arm_means(found["chance"], found["mean"], effect))
        chance = jnp.clip(found["chance"], self.trim, 1.0 - self.trim)
        return Predicted(chance, (found["chance"] < self.trim) | (found["chance"] > 1.0 - self.trim), means)

    def of_batch(self, parameters: Parameters, rows: Rows) -> Statistics:
        found = super().of_batch(parameters, rows)
        means = self.predicted(parameters, rows).means
        arms = rows.people * jnp.stack([1.0 - rows.treatment, rows.treatment])
        errors = spread_out(rows.outcome - means, rows.present, rows.least)
        return replace(found, summed={**found.summed, "squares": jnp.sum(arms * errors**2, axis=1)})

    def bounds(self) -> Bounds:
        return FOREST


def own_effects(
    forest: Arrays, trees: int, bins: Int[Array, "n d"], rows: Rows, people: Array
) -> Float[Array, " n"]:
    """Effects of the site's own people by trees in whose bag they are not."""
    shape = Trees(forest, trees)
    values = jnp.stack([shape.leaf("num"), shape.leaf("den")], axis=2)

    def outside(number: Array) -> Array:
        return 1.0 - in_bag(forest["key"], rows, people, number // BAG)

    total = votes(shape.tree, values, bins, outside)
    return total[:, 0] / jnp.where(total[:, 1] > 0.0, total[:, 1], jnp.inf)


def arm_means(chance: Array, mean: Array, effect: Array) -> Float[Array, "2 n"]:
    """The mean outcome in both arms."""
    return jnp.stack([mean - chance * effect, mean + (1.0 - chance) * effect])
