"""The nuisance regressions of AIPW as procedures: of the outcome in one round, of the treatment in a few.

All regressions travel in one batch: without each fold of each draw of the folds, and of everybody.
`meta_analysis` and `diagnostics` use the same procedures.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logit

from unpooled.errors import DataError
from unpooled.methods.aipw.model import Pooling
from unpooled.methods.aipw.penalties import (
    aic_penalty,
    diagonal,
    fit_of,
    gcv_penalty,
    held_out_penalty,
    solve,
    used_degrees,
)
from unpooled.optimise.procedure import Procedure, ask, side_by_side
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters

EVERYBODY = -1
"""An empty fold: a regression that leaves it out is fitted to all people."""
STEPS = 8
"""Maximum number of Newton rounds; four or five are typical."""
ENOUGH = 1e-8
"""Squared Newton decrement below which the last step is taken without evaluating it. That of the point which
it leads to is of the order of its square."""
NEAR = 5.0
"""Squared Newton decrement of everybody's regression below which the penalty is no longer changed."""
CHOOSING = 5
"""Most Newton rounds in which the penalty is chosen, so that some are left to converge with it."""


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
    """Linear regressions by arm; mean, precision and noise belong to the regression of everybody."""

    coefficients: np.ndarray
    """Coefficients of every site, [batch, site, arm, feature]."""
    mean: np.ndarray
    precision: np.ndarray
    """Posterior precision times the noise variance."""
    noise: np.ndarray
    """Residual variance."""
    ridge: np.ndarray
    """Penalties by arm, or by site and arm."""


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
) -> Procedure[Nuisances]:
    """Fit both regressions; where `ridge` is None, the penalties are chosen by held-out fit.

    `balancing` is another penalty for the regression of everybody's treatment, whose weights are meant to
    balance these people and not to predict who else is treated.
    """
    if treatment is None:
        return Nuisances(None, (yield from regressions(pooling, outcome, ridge)))
    outcomes, propensities = yield from side_by_side(
        regressions(pooling, outcome, ridge), propensity(pooling, treatment, ridge, balancing)
    )
    return Nuisances(propensities, outcomes)


def regressions(pooling: Pooling, without: HeldOut, ridge: float | None) -> Procedure[Outcomes]:
    """Ridge regressions of the outcome by arm, from normal equations: one round."""
    reply = yield from ask("outcome", Parameters(fixed=without.parameters()))
    gram, score, rest = pooling.system(reply)
    _require_both_arms(rest["people"])
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
    return Outcomes(pooling.own(solution), solution[-1], precision, noise, chosen)


def _require_both_arms(people: np.ndarray) -> None:
    if np.any(people == 0):
        raise DataError(
            "both arms must have people outside every fold",
            found="an arm whose people are all in one fold",
            remedy="set folds = 1, or leave out sites with a single person in an arm",
        )


class Expansion(NamedTuple):
    """Log likelihoods of a batch of regressions to second order, each about a point of its own."""

    point: np.ndarray
    value: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray

    @property
    def score(self) -> np.ndarray:
        """s of the quadratic sᵀb − ½bᵀGb."""
        return self.slope + np.einsum("...fg,...g->...f", self.curvature, self.point)


def propensity(
    pooling: Pooling, without: HeldOut, ridge: float | None, balancing: float | None = None
) -> Procedure[Propensity]:
    """Ridge logistic regressions of the treatment by Newton steps; a step that lowers the value is halved.

    While the penalty is chosen, all regressions are evaluated at the point of everybody's regression, where
    their sums can be subtracted. Then each goes on by itself.
    """
    start = np.zeros(pooling.shape(len(without.fold), 1))
    here = _from_rates((yield from _expanded(pooling, without, start)))
    number, choosing = 1, True
    chosen = _penalty(here, pooling.width) if ridge is None else np.full(start.shape[1:-1], ridge)
    step, gain = _newton_step(here, chosen, pooling.width)
    while number < STEPS:
        if choosing and (ridge is not None or np.all(gain[-1] <= NEAR) or number == CHOOSING):
            choosing, last = False, chosen if balancing is None else np.full_like(chosen, balancing)
            chosen = np.stack([*[chosen] * (len(start) - 1), last])
            step, gain = _newton_step(here, chosen, pooling.width)
        if not choosing and np.all(gain <= ENOUGH):
            break
        move = np.repeat(step[-1:], len(step), axis=0) if choosing else step
        there = yield from _expanded(pooling, without, here.point + move)
        number += 1
        worse = _worse(there, here, chosen, pooling.width)
        worse = np.repeat(worse[-1:], len(worse), axis=0) if choosing else worse
        here = Expansion(
            *(np.where(_like(worse, new), old, new) for old, new in zip(here, there, strict=True))
        )
        chosen = _penalty(here, pooling.width) if choosing else chosen
        step, gain = _newton_step(here, chosen, pooling.width)
        step, gain = np.where(worse[..., None], 0.5 * move, step), np.where(worse, np.inf, gain)
    near = gain <= ENOUGH
    found = pooling.own(here.point + np.where(near[..., None], step, 0.0))[:, :, 0]
    return Propensity(found, chosen[0, ..., 0], number, bool(np.all(near)))


def _expanded(pooling: Pooling, without: HeldOut, point: np.ndarray) -> Procedure[Expansion]:
    """The log likelihoods about these points: one round."""
    asked = Parameters(fixed=without.parameters(), per_site={"treatment": pooling.own(point)[:, :, 0]})
    reply: Statistics = yield from ask("treatment", asked)
    gram, score, rest = pooling.system(reply)
    return Expansion(point, rest["likelihood"], score, gram)


def _from_rates(zero: Expansion) -> Expansion:
    """The expansions about everybody's log odds of treatment, from those about zero: no round.

    At zero, curvature and slope are ¼XᵀX and Xᵀ(w − ½), which give those for any common propensity.
    """
    products = 4.0 * zero.curvature
    people = products[..., 0, 0]
    treated = zero.slope[..., 0] + 0.5 * people
    rate = np.clip(treated[-1:] / np.maximum(people[-1:], 1.0), 1e-4, 1.0 - 1e-4)
    first = np.arange(zero.point.shape[-1]) == 0
    return Expansion(
        np.repeat(np.where(first, logit(rate)[..., None], 0.0), len(zero.point), axis=0),
        treated * np.log(rate) + (people - treated) * np.log1p(-rate),
        zero.slope + (0.5 - rate)[..., None] * products[..., 0],
        (rate * (1.0 - rate))[..., None, None] * products,
    )


def _penalty(here: Expansion, width: int) -> np.ndarray:
    """The penalty by held-out fit or, without folds, by AIC."""
    if len(here.point) > 1:
        return held_out_penalty(here.curvature, here.score, width)
    return aic_penalty(here.curvature[0], here.score[0], width)


def _newton_step(here: Expansion, ridge: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The Newton steps of the penalised log likelihoods, and twice their predicted gains."""
    weight = diagonal(ridge, width, here.point.shape[-1])
    slope = here.slope - weight * here.point
    step = solve(here.curvature, slope, weight)
    return step, np.sum(slope * step, axis=-1)


def _worse(there: Expansion, here: Expansion, ridge: np.ndarray, width: int) -> np.ndarray:
    """Whether a step has lowered the penalised log likelihood."""
    weight = diagonal(ridge, width, here.point.shape[-1])
    new, old = (one.value - 0.5 * np.sum(weight * one.point**2, axis=-1) for one in (there, here))
    return new < old - 1e-9 * (1.0 + np.abs(new))


def _like(flag: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A flag for each regression, shaped to go with its values."""
    return flag.reshape(*flag.shape, *[1] * (values.ndim - flag.ndim))
