"""Boosted arms at the sites: residuals from which trees grow, held-out errors, and doubly robust scores.

A model is a start value plus, step by step, a share of the mean prediction of a few trees. There is one for
the outcome in each arm and one for the treatment, without each fold. Everybody is predicted by the models
without their fold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from unpooled.disclosure.effective_people import spread_out
from unpooled.maths.trees import leaves
from unpooled.methods.aipw.stages import Nuisances, ScoresAndNoise
from unpooled.methods.boosted_arms.settings import KEPT, PARTS, TOGETHER
from unpooled.models.held_out_effects import HeldOutEffects, Predicted
from unpooled.models.outcome_family import Family, Gaussian, possible
from unpooled.models.site_offsets import own_chances, own_offset
from unpooled.models.trees import TREES, Target, Trees, bins_of, drawn, hashed
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import LINEAR, Bounds, Stage

EDGE = 0.02
"""Propensities are kept this far from 0 and 1."""
MODELS: Bounds = {**TREES, "value": LINEAR, "start": LINEAR, "steps": (0.0, 200.0)}
"""Bounds of what describes models."""


class Start(Stage):
    """By fold and part: number of people, and the sum of what is predicted."""

    folds: int = eqx.field(static=True)
    by_fold: ClassVar[bool] = True
    reveals: ClassVar[str] = "for sums over sites, by arm and fold: number of people and mean outcome"

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        fold = rows.fold == jnp.arange(self.folds)[:, None]
        used = rows.present * fold[:, None] * used_by_part(rows)
        return Statistics({"people": used.sum(axis=2), "sum": jnp.sum(used * targets(rows), axis=2)})

    def bounds(self) -> Bounds:
        return {"all": (0.0, 0.0)}


def used_by_part(rows: Rows) -> Float[Array, "3 n"]:
    """Who is in which part."""
    return jnp.stack([1.0 - rows.treatment, rows.treatment, jnp.ones_like(rows.treatment)])


def targets(rows: Rows) -> Float[Array, "3 n"]:
    """What is predicted in each part."""
    return jnp.stack([rows.outcome, rows.outcome, rows.treatment])


class Models(eqx.Module):
    """The shape of the models, by which they are read from what is sent."""

    folds: int = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    rate: float = eqx.field(static=True)

    @property
    def count(self) -> int:
        return self.folds * len(PARTS)

    @property
    def trees(self) -> int:
        """Number of trees of one step."""
        return self.count * TOGETHER

    def additions(self, sent: Arrays, bins: Int[Array, "n d"]) -> Callable[[Array], Float[Array, "q n"]]:
        """What a step adds to every model, by its number. A model has no more than its number of `steps`."""
        shapes = Trees(sent, self.steps * self.trees)
        tree, values = jax.tree.map(
            lambda leaf: leaf.reshape(self.steps, self.trees, -1), (shapes.tree, shapes.leaf("value"))
        )
        used = jnp.tile(sent["steps"], self.folds)

        def of_step(step: Array) -> Float[Array, "q n"]:
            one = jax.tree.map(lambda leaf: leaf[step], (tree, values))
            each = jax.vmap(lambda shape, leaf: leaf[leaves(shape, bins)])(*one)
            mean = each.reshape(self.count, TOGETHER, -1).mean(axis=1)
            return self.rate * (step < used)[:, None] * mean

        return of_step

    def predictions(self, sent: Arrays, bins: Int[Array, "n d"]) -> Float[Array, "q n"]:
        """The predictions of all models, folds before parts."""
        add = self.additions(sent, bins)
        begin = jnp.broadcast_to(sent["start"][:, None], (self.count, len(bins)))
        most = jnp.max(sent["steps"]).astype(int)
        return jax.lax.fori_loop(0, most, lambda step, found: found + add(step), begin)

    def own(self, predictions: Float[Array, "q n"], rows: Rows) -> Float[Array, "3 n"]:
        """Everybody's predictions by the models without their fold."""
        by_fold = predictions.reshape(self.folds, len(PARTS), -1)
        fold = jnp.maximum(rows.fold, 0)[None, None, :]
        return jnp.take_along_axis(by_fold, jnp.broadcast_to(fold, (1, *by_fold.shape[1:])), axis=0)[0]


class Residuals(Target):
    """What the models of all parts and folds do not explain yet."""

    models: Models

    def prepared(self, parameters: Parameters, rows: Rows, bins: Array) -> Arrays:
        found = self.models.predictions(parameters.fixed["models"], bins)
        residual = jnp.tile(targets(rows), (self.models.folds, 1)) - found
        return {"residual": residual, "people": hashed(rows), "key": parameters.fixed["key"]}

    def of_tree(self, prepared: Arrays, number: Array, rows: Rows) -> Float[Array, "n 2"]:
        model = number // TOGETHER
        fold, part = model // len(PARTS), model % len(PARTS)
        used = rows.present * used_by_part(rows)[part] * (rows.fold != fold)
        used = used * (drawn(prepared["key"], rows, prepared["people"], number) < KEPT)
        return jnp.stack([used * prepared["residual"][model], used], axis=1)

    def bounds(self) -> Bounds:
        return MODELS


class HeldOut(Stage):
    """Squared errors of held-out people after each number of steps."""

    models: Models
    often: ClassVar[bool] = False
    by_fold: ClassVar[bool] = True
    reveals: ClassVar[str] = (
        "for sums over sites, by arm: number of people, and sums of squared prediction errors of the outcome "
        "and of the treatment after each step of boosting"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        sent, bins = parameters.fixed["models"], bins_of(parameters.fixed, rows)
        add, used = self.models.additions(sent, bins), rows.present * used_by_part(rows)

        def squares(predictions: Array) -> Float[Array, " 3"]:
            errors = targets(rows) - self.models.own(predictions, rows)
            told = jnp.stack([spread_out(*one, rows.least) for one in zip(errors, used, strict=True)])
            return jnp.sum(used * told**2, axis=1)

        def further(predictions: Array, step: Array) -> tuple[Array, Array]:
            predictions = predictions + add(step)
            return predictions, squares(predictions)

        begin = jnp.broadcast_to(sent["start"][:, None], (self.models.count, len(bins)))
        later = jax.lax.scan(further, begin, jnp.arange(self.models.steps))[1]
        found = jnp.concatenate([squares(begin)[None], later])
        return Statistics({"squares": found, "people": used.sum(axis=1)})

    def bounds(self) -> Bounds:
        return MODELS


class BoostedScores(ScoresAndNoise):
    """Doubly robust scores of the average effect, by the models without everybody's fold."""

    models: Models = Models(2, 1, 1.0)
    offsets: bool = eqx.field(static=True, default=True)
    family: Family = Gaussian()
    reveals: ClassVar[str] = ScoresAndNoise.reveals

    def predicted(self, parameters: Parameters, rows: Rows) -> Nuisances:
        bins = bins_of(parameters.fixed, rows)
        found = self.models.own(self.models.predictions(parameters.fixed["models"], bins), rows)
        return centred(found, rows, self.family, self.trim, offsets=self.offsets)

    def bounds(self) -> Bounds:
        return MODELS


def centred(
    found: Float[Array, "3 n"], rows: Rows, family: Family, trim: float, *, offsets: bool
) -> Nuisances:
    """Propensities and mean outcomes of the site's own people, corrected for the site."""
    means, chance = found[:2], jnp.clip(found[2], EDGE, 1.0 - EDGE)
    if offsets:
        chance = own_chances(chance, rows)
        arms = used_by_part(rows)[:2]
        means = means + own_offset(jnp.sum(arms * (rows.outcome - means), axis=0), rows)
    outside = (chance < trim) | (chance > 1.0 - trim)
    return Nuisances(jnp.clip(chance, trim, 1.0 - trim), outside, possible(family, means))


class BoostedEffects(HeldOutEffects):
    """Effects by the models without everybody's fold. How far the others are apart tells their variance."""

    models: Models

    def predicted(self, parameters: Parameters, rows: Rows) -> Predicted:
        found = self.models.predictions(parameters.fixed["models"], bins_of(parameters.fixed, rows))
        arms = found.reshape(self.models.folds, len(PARTS), -1)
        effects = arms[:, 1] - arms[:, 0]
        own = self.models.own(found, rows)
        return Predicted(own[1] - own[0], (self.models.folds - 1.0) * effects.var(axis=0))

    def bounds(self) -> Bounds:
        return MODELS
