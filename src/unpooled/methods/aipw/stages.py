"""AIPW at the sites: sums for the nuisance regressions, then doubly robust scores or weighted means."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from unpooled.disclosure.effective_people import capped, enough, spread_out
from unpooled.maths.linear_algebra import pack
from unpooled.methods.aipw.model import (
    score_sums,
    scores_of,
    stacked_scores,
    stacked_weights,
    weight_sums,
    weights_from,
)
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import FOLD, FOLD_DRAW, LINEAR, LOGIT, Bounds, Stage


def features(covariates: Array) -> Float[Array, "n f"]:
    """A column of ones and the covariates."""
    return jnp.concatenate([jnp.ones((len(covariates), 1)), covariates], axis=1)


REGRESSIONS: Bounds = {"without": FOLD, "draw": FOLD_DRAW, "treatment": LOGIT, "outcome": LINEAR}


class Treatment(Stage):
    """Gradient and Hessian of the logistic regression of the treatment, leaving out one fold."""

    offsets: bool = eqx.field(static=True)
    in_batches: ClassVar[bool] = True
    reveals: ClassVar[str] = (
        "for sums over sites: slope and curvature of the treatment's log likelihood, without each fold "
        "of each draw of the folds; where sites have offsets, at this site: its slope and curvature in the "
        "intercept"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        return _shared(treatment_sums(parameters, rows), self.offsets)

    def bounds(self) -> Bounds:
        return REGRESSIONS


class Outcome(Stage):
    """Normal equations of the linear outcome regressions by arm, leaving out one fold."""

    offsets: bool = eqx.field(static=True)
    in_batches: ClassVar[bool] = True
    reveals: ClassVar[str] = (
        "for sums over sites: products of the covariates and the outcome by arm, without each fold of "
        "each draw of the folds; where sites have offsets, at this site: sums of the covariates and "
        "of the outcome by arm"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        return _shared(outcome_sums(parameters, rows), self.offsets)

    def bounds(self) -> Bounds:
        return REGRESSIONS


def treatment_sums(parameters: Parameters, rows: Rows) -> dict[str, Array]:
    """Log likelihood, gradient and Hessian at the site's coefficients, with a leading axis of length one."""
    design, use = features(rows.covariates), _in_use(parameters, rows)
    logit = design @ parameters.per_site["treatment"]
    chance = jax.nn.sigmoid(logit)
    gram = jnp.einsum("n,nf,ng->fg", use * chance * (1.0 - chance), design, design)
    likelihood = use @ jax.nn.log_sigmoid(jnp.where(rows.treatment > 0.0, logit, -logit))
    score = (use * (rows.treatment - chance)) @ design
    # Where the curve is steep, only the people on the slope contribute; few of them are not sent.
    each = jnp.stack([chance * (1.0 - chance), jnp.abs(rows.treatment - chance)]) * use
    factor = jnp.min(enough(each, rows.least))
    sums = {"gram": gram[None], "score": score[None], "likelihood": likelihood[None]}
    return {name: factor * found for name, found in sums.items()}


def outcome_sums(parameters: Parameters, rows: Rows) -> dict[str, Array]:
    """By arm: products of the features with each other and with the outcome, and the number of people."""
    design = features(rows.covariates)
    arms = jnp.stack([1.0 - rows.treatment, rows.treatment]) * _in_use(parameters, rows)
    return {
        "gram": jnp.einsum("an,nf,ng->afg", arms, design, design),
        "score": jnp.einsum("an,n,nf->af", arms, rows.outcome, design),
        "square": arms @ rows.outcome**2,
        "people": arms.sum(axis=1),
    }


def _in_use(parameters: Parameters, rows: Rows) -> Float[Array, " n"]:
    fold = _drawn_fold(parameters, rows)
    return rows.present * (fold != parameters.fixed["without"])


def _drawn_fold(parameters: Parameters, rows: Rows) -> Int[Array, " n"]:
    """The folds of the draw that is asked for; those of the first if there is only one."""
    if rows.more_folds is None:
        return rows.fold
    return jnp.concatenate([rows.fold[None], rows.more_folds])[parameters.fixed.get("draw", 0)]


def packed(sums: dict[str, Array]) -> dict[str, Array]:
    """The sums with Gram matrices reduced to their lower triangle, as they are sent."""
    return {**sums, "gram": pack(sums["gram"])}


def _shared(sums: dict[str, Array], offsets: bool) -> Statistics:
    """Sums over sites, plus the site's own sums that its intercept depends on if there are offsets."""
    own = {"gram_row": sums["gram"][:, 0], "score_start": sums["score"][:, 0]} if offsets else {}
    return Statistics(packed(sums), own)


class Scores(Stage):
    """ψ = μ₁ − μ₀ + w(y − μ₁)/e − (1 − w)(y − μ₀)/(1 − e), cross-fitted: each person by fits without them."""

    trim: float = eqx.field(static=True)
    often: ClassVar[bool] = False
    in_batches: ClassVar[bool] = True
    of_effects: ClassVar[bool] = True
    reveals: ClassVar[str] = (
        "at this site, by draw of the folds: number of people, mean and sum of squared deviations of their "
        "doubly robust scores, sum of squares of their weighted residuals; for sums over sites: how many "
        "propensities were clipped and, by arm, number of people, sum of inverse-propensity weights and of "
        "their squares"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        own, fold = parameters.per_site, _drawn_fold(parameters, rows)
        chance, clipped = _clipped(own["treatment"], rows, fold, self.trim)
        means = jnp.einsum("nf,naf->an", features(rows.covariates), own["outcome"][fold])
        seen = jnp.where(rows.treatment > 0.0, means[1], means[0])
        weight = rows.treatment / chance - (1.0 - rows.treatment) / (1.0 - chance)
        residual = weight * (rows.outcome - seen)
        score = means[1] - means[0] + residual
        score = spread_out(score, rows.present, rows.least)
        people = rows.present.sum()
        mean = rows.present @ score / people
        per_site = {
            "people": people,
            "mean": mean,
            "squares": rows.present @ (score - mean) ** 2,
            "noise": rows.present @ spread_out(residual, rows.present, rows.least) ** 2,
        }
        return Statistics(_weight_sums(chance, clipped, rows), per_site)

    def merged(self, parts: Statistics) -> Statistics:
        own = {**stacked_scores(parts.per_site), "noise": parts.per_site["noise"].sum(axis=0)}
        return replace(super().merged(parts), per_site=own)

    def people_sums(self, own: Arrays, people: Array) -> Arrays:
        return score_sums(own)

    def of_people(self, sums: Arrays) -> Arrays:
        return scores_of(sums)

    def bounds(self) -> Bounds:
        return REGRESSIONS


class WeightedOutcomes(Stage):
    """Means by arm with weights 1/e and 1/(1 − e), and the sums that their standard errors require."""

    trim: float = eqx.field(static=True)
    often: ClassVar[bool] = False
    in_batches: ClassVar[bool] = True
    of_effects: ClassVar[bool] = True
    reveals: ClassVar[str] = (
        "at this site, by arm: number of people, sum of inverse-propensity weights, the weighted mean of the "
        "outcome, sums of squared weights with deviations from that mean and their squares; for sums over "
        "sites: how many propensities were clipped and, by arm, the same numbers and sums of the weights"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        fold = _drawn_fold(parameters, rows)
        chance, clipped = _clipped(parameters.per_site["treatment"], rows, fold, self.trim)
        arms, weight = _weights(chance, rows)
        total = weight.sum(axis=1)
        mean = weight @ rows.outcome / jnp.where(total > 0.0, total, 1.0)  # a batch may lack an arm
        deviation = rows.outcome - mean[:, None]
        powers = jnp.stack([jnp.ones_like(deviation), deviation, deviation**2], axis=-1)
        squares = jnp.einsum("an,anp->ap", weight**2, powers)
        per_site = {"people": arms.sum(axis=1), "weight": total, "mean": mean, "squares": squares}
        return Statistics(_weight_sums(chance, clipped, rows), per_site)

    def merged(self, parts: Statistics) -> Statistics:
        return replace(super().merged(parts), per_site=stacked_weights(parts.per_site))

    def people_sums(self, own: Arrays, people: Array) -> Arrays:
        return weight_sums(own)

    def of_people(self, sums: Arrays) -> Arrays:
        return weights_from(sums)

    def bounds(self) -> Bounds:
        return REGRESSIONS


def propensity(coefficients: Array, rows: Rows, fold: Array) -> Float[Array, " n"]:
    """Propensity scores, each from the fit without the person's fold."""
    return jax.nn.sigmoid(jnp.einsum("nf,nf->n", features(rows.covariates), coefficients[fold]))


def _weights(chance: Array, rows: Rows) -> tuple[Float[Array, "2 n"], Float[Array, "2 n"]]:
    """Who is in which arm, and the inverse-propensity weights in each."""
    arms = rows.present * jnp.stack([1.0 - rows.treatment, rows.treatment])
    return arms, capped(arms / jnp.stack([1.0 - chance, chance]), rows.least)


def _weight_sums(chance: Array, clipped: Array, rows: Rows) -> dict[str, Array]:
    """What the checks of the weights need: clipped propensities, and effective sample sizes by arm."""
    arms, weight = _weights(chance, rows)
    return {
        "clipped": _count(clipped, rows),
        "arms": (arms > 0.0).sum(axis=1).astype(float),
        "weight": weight.sum(axis=1),
        "weight_squares": (weight**2).sum(axis=1),
    }


def _count(clipped: Array, rows: Rows) -> Float[Array, ""]:
    """How many propensities were clipped; with limits, none or all if they, or the others, are few."""
    found, everybody = rows.people @ clipped, rows.people.sum()
    if not rows.least:
        return found
    return jnp.where(found <= rows.least, 0.0, jnp.where(everybody - found <= rows.least, everybody, found))


def _clipped(coefficients: Array, rows: Rows, fold: Array, trim: float) -> tuple[Float[Array, " n"], Array]:
    """Propensities clipped to [trim, 1 − trim], and which ones were clipped."""
    chance = propensity(coefficients, rows, fold)
    return jnp.clip(chance, trim, 1.0 - trim), (chance < trim) | (chance > 1.0 - trim)
