"""AIPW at the sites: sums for the nuisance regressions, then doubly robust scores or weighted means."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unpooled.disclosure.effective_people import capped, enough, spread_out
from unpooled.maths.linear_algebra import pack
from unpooled.methods.aipw.group_sums import (
    arm_weights,
    groups_of,
    of_people,
    people_sums,
    products,
    quotients,
    sent,
    stacked,
)
from unpooled.models.outcome_family import STEEPEST, Family, Gaussian, Logit
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows, sums_by_cluster
from unpooled.protocol.stage import FOLD, FOLD_DRAW, LINEAR, LOGIT, Bounds, Stage


def features(covariates: Array) -> Float[Array, "n f"]:
    """A column of ones and the covariates."""
    return jnp.concatenate([jnp.ones((len(covariates), 1)), covariates], axis=1)


REGRESSIONS: Bounds = {"without": FOLD, "draw": FOLD_DRAW, "treatment": LOGIT, "outcome": LINEAR}
BY_LIKELIHOOD: Bounds = {**REGRESSIONS, "outcome": LOGIT}
"""Of regressions of 0/1 outcomes and counts, whose coefficients are of a logit or a logarithm."""


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


class OutcomeLikelihood(Stage):
    """Gradients and Hessians of regressions of a 0/1 outcome or a count by arm, leaving out one fold."""

    offsets: bool = eqx.field(static=True)
    family: Family
    in_batches: ClassVar[bool] = True
    reveals: ClassVar[str] = (
        "for sums over sites: by arm, slope and curvature of the outcome's log likelihood and squared errors "
        "of counts, without each fold of each draw of the folds; where sites have offsets, at this site: its "
        "slopes and curvatures in the intercepts"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        return _shared(outcome_likelihood_sums(parameters, rows, self.family), self.offsets)

    def bounds(self) -> Bounds:
        return BY_LIKELIHOOD


def treatment_sums(parameters: Parameters, rows: Rows) -> dict[str, Array]:
    """Log likelihood, gradient and Hessian at the site's coefficients, with a leading axis of length one."""
    predictor = features(rows.covariates) @ parameters.per_site["treatment"]
    return _likelihood_sums(rows.treatment, predictor[None], _in_use(parameters, rows)[None], rows)


def outcome_likelihood_sums(parameters: Parameters, rows: Rows, family: Family) -> dict[str, Array]:
    """By arm: log likelihood, gradient and Hessian, and Pearson's squared errors of counts."""
    predictor = parameters.per_site["outcome"] @ features(rows.covariates).T
    arms = jnp.stack([1.0 - rows.treatment, rows.treatment]) * _in_use(parameters, rows)
    counts = not isinstance(family, Logit)
    return _likelihood_sums(family.seen(rows.outcome), predictor, arms, rows, counts=counts)


def _likelihood_sums(
    seen: Float[Array, " n"],
    predictor: Float[Array, "r n"],
    use: Float[Array, "r n"],
    rows: Rows,
    *,
    counts: bool = False,
) -> dict[str, Array]:
    """Of logistic regressions, or of log-linear ones of counts with Poisson's quasi-likelihood."""
    design = features(rows.covariates)
    if counts:
        mean = jnp.exp(jnp.minimum(predictor, STEEPEST))
        variance, likelihood = mean, seen * predictor - mean
    else:
        mean = jax.nn.sigmoid(predictor)
        variance = mean * (1.0 - mean)
        likelihood = jax.nn.log_sigmoid(jnp.where(seen > 0.5, predictor, -predictor))
    sums = {
        "gram": jnp.einsum("rn,nf,ng->rfg", use * variance, design, design),
        "score": (use * (seen - mean)) @ design,
        "likelihood": jnp.sum(use * likelihood, axis=1),
    }
    # Where the curve is steep, only the people on the slope contribute; few of them are not sent.
    each = use * jnp.stack([variance, jnp.abs(seen - mean)])
    factor = jnp.min(enough(each, rows.least), axis=0)
    sums = {name: factor.reshape(-1, *[1] * (found.ndim - 1)) * found for name, found in sums.items()}
    if not counts:
        return sums
    errors = capped(use * (seen - mean) ** 2 / mean, rows.least)
    return {**sums, "pearson": errors.sum(axis=1)}


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


class MeansByGroup(Stage):
    """A base class of stages that send mean outcomes by group, from `group_sums`."""

    trim: float = eqx.field(static=True)
    adjusted: bool = eqx.field(static=True, default=True)
    """Whether there are propensities, by which the treated, the controls and the overlap are estimated."""
    named: bool = eqx.field(static=True, default=True)
    """Whether the groups that the study names are estimated too."""
    often: ClassVar[bool] = False
    in_batches: ClassVar[bool] = True
    of_effects: ClassVar[bool] = True
    by_fold: ClassVar[bool] = True

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        found = self.of_batch(parameters, rows)
        return replace(found, per_site=self.sent(found.per_site))

    def merged(self, parts: Statistics) -> Statistics:
        return replace(super().merged(parts), per_site=self.sent(stacked(parts.per_site)))

    def sent(self, own: Arrays) -> Arrays:
        return sent(own)

    def people_sums(self, own: Arrays, people: Array) -> Arrays:
        return people_sums(own)

    def of_people(self, sums: Arrays) -> Arrays:
        return self.sent(of_people(sums))

    def bounds(self) -> Bounds:
        return REGRESSIONS


class Nuisances(NamedTuple):
    """What doubly robust scores need to know of everybody."""

    chance: Float[Array, " n"]
    """The propensity, clipped."""
    clipped: Array
    """Whose propensity was clipped."""
    means: Float[Array, "2 n"]
    """The mean outcome in both arms."""


class DoublyRobust(MeansByGroup):
    """Doubly robust scores, each person's by predictions without them.

    For the average effect, ψ = μ₁ − μ₀ + w(y − μ₁)/e − (1 − w)(y − μ₀)/(1 − e).
    """

    reveals: ClassVar[str] = (
        "at this site, by draw of the folds and by group (everybody, the treated, the controls, the overlap, "
        "groups that the study names): number of people, or of clusters, and, for the mean outcome under "
        "control and for the effect, means of their doubly robust scores, and sums of products of the "
        "scores' deviations and of their weighted residuals; for sums over sites: how many propensities were "
        "clipped and, by arm, number of people, sum of inverse-propensity weights and of their squares"
    )

    @abstractmethod
    def predicted(self, parameters: Parameters, rows: Rows) -> Nuisances:
        """Everybody's propensity and mean outcomes."""

    def of_batch(self, parameters: Parameters, rows: Rows) -> Statistics:
        chance, clipped, means = self.predicted(parameters, rows)
        groups = groups_of(rows, chance, adjusted=self.adjusted, named=self.named)
        residual = arm_weights(rows, chance, groups) * (rows.outcome - means)
        score = _compared(groups.member[:, None] * means + residual)
        score = _spread_out(score, groups.member, rows)
        noise = spread_out(_compared(residual).reshape(-1, len(chance)), rows.people, rows.least)
        noise = sums_by_cluster(rows.people * noise, rows)
        found = {**quotients(score, groups.member, rows), "noise": products(noise, rows, 2)}
        return Statistics(_weight_sums(chance, clipped, rows), found)


class ScoresAndNoise(DoublyRobust):
    """Doubly robust scores, and how much the outcome varies about its prediction in each arm."""

    in_batches: ClassVar[bool] = False
    reveals: ClassVar[str] = f"{DoublyRobust.reveals}, and of their squared residuals"

    def of_batch(self, parameters: Parameters, rows: Rows) -> Statistics:
        found, means = super().of_batch(parameters, rows), self.predicted(parameters, rows).means
        arms = rows.people * jnp.stack([1.0 - rows.treatment, rows.treatment])
        errors = spread_out(rows.outcome - means, rows.present, rows.least)
        return replace(found, summed={**found.summed, "squares": jnp.sum(arms * errors**2, axis=1)})


class Scores(DoublyRobust):
    """Doubly robust scores by regressions, cross-fitted: each person by fits without their fold."""

    family: Family = Gaussian()
    """The outcome's family, whose mean the outcome regressions are of."""
    reveals: ClassVar[str] = DoublyRobust.reveals

    def predicted(self, parameters: Parameters, rows: Rows) -> Nuisances:
        own, fold = parameters.per_site, _drawn_fold(parameters, rows)
        chance, clipped = _clipped(own["treatment"], rows, fold, self.trim)
        predictor = jnp.einsum("nf,naf->an", features(rows.covariates), own["outcome"][fold])
        return Nuisances(chance, clipped, self.family.standardised_mean(self.family.mean(predictor)))

    def bounds(self) -> Bounds:
        return REGRESSIONS if isinstance(self.family, Gaussian) else BY_LIKELIHOOD


class WeightedOutcomes(MeansByGroup):
    """Means by arm with weights h/e and h/(1 − e), and the sums that their standard errors require."""

    reveals: ClassVar[str] = (
        "at this site, by arm and by group (everybody, the treated, the controls, the overlap, groups that "
        "the study names): number of people, sum of weights and of their squares, the weighted mean of the "
        "outcome, and sums of products of weighted deviations from that mean; for sums over sites: how many "
        "propensities were clipped and, by arm, number of people, sum of inverse-propensity weights and of "
        "their squares"
    )

    def of_batch(self, parameters: Parameters, rows: Rows) -> Statistics:
        fold = _drawn_fold(parameters, rows)
        chance, clipped = _clipped(parameters.per_site["treatment"], rows, fold, self.trim)
        groups = groups_of(rows, chance, adjusted=self.adjusted, named=self.named)
        weight = capped(arm_weights(rows, chance, groups).reshape(-1, len(chance)), rows.least)
        own = quotients((weight * rows.outcome)[:, None], weight, rows)
        own["size"] = groups.member.sum(axis=-1)
        return Statistics(_weight_sums(chance, clipped, rows), own)

    def sent(self, own: Arrays) -> Arrays:
        # By mean, what one weighted mean over all sites needs.
        each = np.arange(own["weight"].shape[-1])
        return {**sent(own), **{name: own[name][..., each, each] for name in ("crossed", "weights")}}


def _compared(arms: Float[Array, "g 2 n"]) -> Float[Array, "g 2 n"]:
    """From control and treated to the effect and the control: AIPW's effect has its own spread, not that of
    two means."""
    return jnp.stack([arms[:, 1] - arms[:, 0], arms[:, 0]], axis=1)


def _spread_out(
    score: Float[Array, "g 2 n"], member: Float[Array, "g n"], rows: Rows
) -> Float[Array, "g 2 n"]:
    """Scores whose deviations from those of the median person are capped, as `spread_out` does it."""
    if not rows.least:
        return score
    centre = jnp.nanmedian(jnp.where(rows.present > 0.0, score[0], jnp.nan), axis=-1)
    usual = centre[:, None] * member[:, None]
    deviation = rows.people * (score - usual)
    return usual + jnp.sign(deviation) * capped(jnp.abs(deviation), rows.least)


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
