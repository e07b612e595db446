"""The super learner at the sites: a causal loss of the candidates on held-out people, and what they miss.

Candidates are judged by the R-loss (Nie and Wager 2021), Σ ((y − m) − (w − e)τ)², with propensities e and
mean outcomes m by forests without the person. Its minimum over weights of the candidates' effects τ follows
from sums of products. Unlike the factual error, it does not reward predicting what both arms have in common.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.disclosure.effective_people import spread_out
from unpooled.maths.trees import Tree, leaves
from unpooled.methods.aipw.stages import Nuisances, ScoresAndNoise
from unpooled.methods.causal_forest.settings import BAG
from unpooled.methods.causal_forest.stages import FOREST, SECOND, arm_means, centred, in_bag
from unpooled.models.held_out_effects import HeldOutEffects, Predicted
from unpooled.models.outcome_family import Family, Gaussian, possible
from unpooled.models.trees import Trees, bins_of, hashed
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import LINEAR, Bounds, Stage, union


class Candidates(eqx.Module):
    """The candidates' effects, and the forests by which they are judged."""

    effects: tuple[HeldOutEffects, ...]
    nuisance_trees: int = eqx.field(static=True)
    offsets: bool = eqx.field(static=True)

    def each(self, parameters: Parameters, rows: Rows) -> Predicted:
        """Effects and variances [candidate, n] of everybody, by fits without them."""
        fixed, own = parameters.fixed["candidates"], parameters.per_site["candidates"]
        found = [
            one.predicted(Parameters(fixed=shared, per_site=at_site), rows)
            for one, shared, at_site in zip(self.effects, fixed, own, strict=True)
        ]
        return Predicted(*(jnp.stack(part) for part in zip(*found, strict=True)))

    def centred(self, parameters: Parameters, rows: Rows) -> Arrays:
        """Propensities and mean outcomes of everybody, by trees in which they are not."""
        fixed, people, bins = parameters.fixed, hashed(rows), bins_of(parameters.fixed, rows)
        return centred(fixed, rows, bins, people, self.nuisance_trees, offsets=self.offsets)

    def stacked(self, parameters: Parameters, rows: Rows) -> Predicted:
        """The weighted effect; its variance includes how far the candidates are apart."""
        share, constant = parameters.fixed["share"], parameters.fixed["constant"]
        effect, variance = self.each(parameters, rows)
        effect = jnp.concatenate([effect, jnp.full_like(effect[:1], constant[0])])
        variance = jnp.concatenate([variance, jnp.full_like(variance[:1], constant[1] ** 2)])
        mean = share @ effect
        return Predicted(mean, share @ (variance + (effect - mean) ** 2))

    def bounds(self) -> Bounds:
        return union(
            FOREST, {"share": (0.0, 1.0), "constant": LINEAR}, *(one.bounds() for one in self.effects)
        )


class RLoss(Stage):
    """Sums of products of (w − e)τ, for every candidate and a constant effect, and of y − m."""

    candidates: Candidates
    often: ClassVar[bool] = False
    reveals: ClassVar[str] = (
        "for sums over sites: number of people, and sums of products of the effects that the candidates "
        "predict for held-out people, times their treatment's residual, with each other and with the "
        "outcome's residual"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        found, effects = (
            self.candidates.centred(parameters, rows),
            self.candidates.each(parameters, rows).effect,
        )
        treatment, outcome = rows.treatment - found["chance"], rows.outcome - found["mean"]
        columns = jnp.concatenate([treatment * effects, jnp.stack([treatment, outcome])])
        columns = spread_out(columns, rows.present, rows.least)
        return Statistics({"products": (rows.present * columns) @ columns.T, "people": rows.people.sum()})

    def bounds(self) -> Bounds:
        return self.candidates.bounds()


class Unexplained(Stage):
    """Sums by leaf of the forest of effects, of people who are not in the tree, by which it is told how far
    the stacked effect is from the truth."""

    candidates: Candidates
    trees: int = eqx.field(static=True)
    often: ClassVar[bool] = False
    reveals: ClassVar[str] = (
        "for sums over sites: for each tree and leaf, over half of those who are not in it, sums of "
        "residuals of the outcome times the treatment's, of the squares of either, and of the fourth "
        "power of the latter, where there are enough people; and the mean variance of their predicted "
        "effects"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        found = self.candidates.centred(parameters, rows)
        effect, variance = self.candidates.stacked(parameters, rows)
        treatment = rows.treatment - found["chance"]
        weight = rows.present * treatment**2
        missed = treatment * (rows.outcome - found["mean"] - treatment * effect)
        missed = spread_out(missed, rows.present, rows.least)
        values = jnp.stack([missed, missed**2, treatment**2, treatment**4], axis=1)
        people, bins = hashed(rows), bins_of(parameters.fixed, rows)
        forest = parameters.fixed["effect"]

        def one(tree: tuple[Array, Tree]) -> Float[Array, "l 4"]:
            number, shape = tree
            outside = rows.present * (1.0 - in_bag(forest["key"], rows, people, number // BAG))
            # Trees of a bag would have the same people, and leaves that differ by few of them.
            outside = outside * in_bag(forest["key"], rows, people, number + SECOND)
            leaf, empty = leaves(shape, bins), jnp.zeros((1 + shape.feature.shape[-1], 4))
            sums = empty.at[leaf].add(outside[:, None] * values)
            largest = empty[:, 0].at[leaf].max(outside * treatment**2)
            return jnp.where((sums[:, 2] > rows.least * largest)[:, None], sums, 0.0)

        sums = jax.lax.map(one, (jnp.arange(self.trees), Trees(forest, self.trees).tree))
        spread = spread_out(variance, rows.present, rows.least)
        return Statistics({"leaves": sums, "variance": jnp.stack([jnp.sum(weight * spread), weight.sum()])})

    def bounds(self) -> Bounds:
        return self.candidates.bounds()


class StackedScores(ScoresAndNoise):
    """Doubly robust scores of the average effect, by the forests and the stacked effect."""

    candidates: Candidates | None = None
    family: Family = Gaussian()
    in_batches: ClassVar[bool] = False
    by_fold: ClassVar[bool] = True
    reveals: ClassVar[str] = ScoresAndNoise.reveals

    def predicted(self, parameters: Parameters, rows: Rows) -> Nuisances:
        assert self.candidates is not None
        found, effect = (
            self.candidates.centred(parameters, rows),
            self.candidates.stacked(parameters, rows).effect,
        )
        means = possible(self.family, arm_means(found["chance"], found["mean"], effect))
        outside = (found["chance"] < self.trim) | (found["chance"] > 1.0 - self.trim)
        return Nuisances(jnp.clip(found["chance"], self.trim, 1.0 - self.trim), outside, means)

    def bounds(self) -> Bounds:
        assert self.candidates is not None
        return self.candidates.bounds()
