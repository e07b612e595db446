"""The nuisance regressions of AIPW as procedures: linear ones take one round, the others a few.

All regressions travel in one batch: without each fold of each draw of the folds, and of everybody.
`meta_analysis` and `diagnostics` use the same procedures.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.errors import DataError
from unpooled.methods.aipw.model import Pooling, System
from unpooled.methods.aipw.newton import Expansion, about_rates, mode
from unpooled.methods.aipw.penalties import (
    diagonal,
    fit_of,
    gcv_penalty,
    held_out_penalty,
    solve,
    used_degrees,
)
from unpooled.models.outcome_family import Gaussian, Logit, NegativeBinomial
from unpooled.optimise.procedure import Procedure, ask, side_by_side
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters

ByLikelihood = Logit | NegativeBinomial
Regressed = Gaussian | ByLikelihood
"""Families of outcomes that are regressed."""
GAUSSIAN = Gaussian()
LEAST_DISPERSION = 1e-6
"""A count with a smaller α is a Poisson count."""
EVERYBODY = -1
"""An empty fold: a regression that leaves it out is fitted to all people."""


class HeldOut(NamedTuple):
    """What each regression of a batch leaves out: a fold of a draw of the folds, or nothing (the last)."""

    fold: np.ndarray
    draw: np.ndarray

    def parameters(self) -> Arrays:
        return {"without": self.fold, "draw": self.draw}


def held_out(folds: int, draws: int = 1) -> HeldOut:
    """Each fold of each draw, draw by draw, then nothing; with a single fold only that."""
    fold = np.tile(np.arange(folds), draws) if folds > 1 else np.zeros(0, int)
    draw = np.repeat(np.arange(draws), folds) if folds > 1 else np.zeros(0, int)
    return HeldOut(np.append(fold, EVERYBODY), np.append(draw, 0))


class Outcomes(NamedTuple):
    """Regressions by arm; mean, precision, spread and noise belong to the regression of everybody."""

    coefficients: np.ndarray
    """Coefficients of every site, [batch, site, arm, feature]."""
    mean: np.ndarray
    precision: np.ndarray
    """Posterior precision times `spread`."""
    spread: np.ndarray
    """Residual variance, as a multiple of the variance that the family has by itself."""
    noise: np.ndarray
    """Residual variance of a continuous outcome, dispersion α of a count with variance μ + αμ²."""
    ridge: np.ndarray
    """Penalties by arm, or by site and arm."""
    rounds: int = 1
    converged: bool = True


class Propensity(NamedTuple):
    """Coefficients of every site [batch, site, feature], the penalty, and how the Newton steps ended."""

    coefficients: np.ndarray
    ridge: np.ndarray
    rounds: int
    converged: bool


class Nuisances(NamedTuple):
    """The fitted nuisance regressions; `treatment` is None if the estimator needs no propensities."""

    treatment: Propensity | None
    outcome: Outcomes


def nuisances(
    pooling: Pooling,
    ridge: float | None,
    treatment: HeldOut | None,
    outcome: HeldOut,
    balancing: float | None = None,
    family: Regressed = GAUSSIAN,
) -> Procedure[Nuisances]:
    """Fit both regressions; where `ridge` is None, the penalties are chosen by held-out fit.

    The outcome's regressions are logistic for 0/1 outcomes, log-linear for counts, and else linear.

    `balancing` is another penalty for the regression of everybody's treatment, whose weights are meant to
    balance these people and not to predict who else is treated.
    """
    if treatment is None:
        return Nuisances(None, (yield from regressions(pooling, outcome, ridge, family)))
    outcomes, propensities = yield from side_by_side(
        regressions(pooling, outcome, ridge, family), propensity(pooling, treatment, ridge, balancing)
    )
    return Nuisances(propensities, outcomes)


def regressions(
    pooling: Pooling, without: HeldOut, ridge: float | None, family: Regressed = GAUSSIAN
) -> Procedure[Outcomes]:
    """Ridge regressions of the outcome by arm, from normal equations: one round if they are linear."""
    reply = yield from ask("outcome", Parameters(fixed=without.parameters()))
    known = pooling.system(reply)
    _require_both_arms(known.rest["people"])
    if isinstance(family, Gaussian):
        return _linear(pooling, known, ridge)
    return (yield from _by_likelihood(pooling, known, without, ridge, family))


def _linear(pooling: Pooling, known: System, ridge: float | None) -> Outcomes:
    gram, score, rest = known
    if ridge is not None:
        chosen = np.full(score.shape[1:-1], ridge)
    elif len(score) > 1:
        chosen = held_out_penalty(gram, score, pooling.width)
    else:
        chosen = gcv_penalty(gram[0], score[0], rest["square"][0], rest["people"][0], pooling.width)
    weight = diagonal(chosen, pooling.width, score.shape[-1])
    solution = solve(gram, score, weight)
    squares = rest["square"][-1] - 2.0 * fit_of(solution[-1], gram[-1], score[-1])
    noise = np.maximum(squares, 0.0) / np.maximum(rest["people"][-1] - used_degrees(gram[-1], weight), 1.0)
    precision = gram[-1] + weight[..., None] * np.eye(score.shape[-1])
    return Outcomes(pooling.own(solution), solution[-1], precision, noise, noise, chosen)


def _by_likelihood(
    pooling: Pooling, known: System, without: HeldOut, ridge: float | None, family: ByLikelihood
) -> Procedure[Outcomes]:
    """Logistic regressions of 0/1 outcomes and log-linear ones of counts, in a few Newton rounds.

    Counts have the variance φμ. φ is Pearson's; it widens the spread of the coefficients, and that of a
    person's count is μ + αμ² with the same sum over people.
    """
    counts, pearson = not isinstance(family, Logit), np.zeros(())

    def expand(point: np.ndarray) -> Procedure[Expansion]:
        nonlocal pearson
        asked = Parameters(fixed=without.parameters(), per_site={"outcome": pooling.own(point)})
        reply: Statistics = yield from ask("outcome_likelihood", asked)
        gram, score, rest = pooling.system(reply)
        pearson = rest["pearson"][-1] if counts else pearson
        return Expansion(point, rest["likelihood"], score, gram)

    totals = family.rate * known.gram[..., 0] + family.sd * known.score
    found = yield from mode(
        expand, about_rates(known.gram, np.asarray(totals), counts=counts), pooling.width, ridge
    )
    curvature, people = found.last.curvature[-1], known.rest["people"][-1]
    weight = diagonal(found.ridge[-1], pooling.width, totals.shape[-1])
    precision = curvature + weight[..., None] * np.eye(totals.shape[-1])
    excess, left = np.zeros(people.shape), np.maximum(people - used_degrees(curvature, weight), 1.0)
    if counts:
        excess = np.maximum(pearson / left - 1.0, 0.0)
    noise = np.maximum(excess * people / np.maximum(curvature[..., 0, 0], 1e-12), LEAST_DISPERSION)
    return Outcomes(
        pooling.own(found.point), found.point[-1], precision, 1.0 + excess, noise, found.ridge[-1],
        found.rounds, found.converged,
    )  # fmt: skip


def _require_both_arms(people: np.ndarray) -> None:
    if np.any(people == 0):
        raise DataError(
            "both arms must have people outside every fold",
            found="an arm whose people are all in one fold",
            remedy="set folds = 1, or leave out sites with a single person in an arm",
        )


def propensity(
    pooling: Pooling, without: HeldOut, ridge: float | None, balancing: float | None = None
) -> Procedure[Propensity]:
    """Ridge logistic regressions of the treatment, from coefficients of 0."""

    def expand(point: np.ndarray) -> Procedure[Expansion]:
        asked = Parameters(fixed=without.parameters(), per_site={"treatment": pooling.own(point)[:, :, 0]})
        reply: Statistics = yield from ask("treatment", asked)
        gram, score, rest = pooling.system(reply)
        return Expansion(point, rest["likelihood"], score, gram)

    zero = yield from expand(np.zeros(pooling.shape(len(without.fold), 1)))
    # At zero, curvature and slope are ¼XᵀX and Xᵀ(w − ½).
    products = 4.0 * zero.curvature
    here = about_rates(products, zero.slope + 0.5 * products[..., 0])
    found = yield from mode(expand, here, pooling.width, ridge, balancing)
    coefficients = pooling.own(found.point)[:, :, 0]
    return Propensity(coefficients, found.ridge[0, ..., 0], found.rounds, found.converged)
