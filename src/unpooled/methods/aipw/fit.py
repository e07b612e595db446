"""AIPW as a procedure: cross-fitted nuisance regressions, then one round of scores.

The outcome regressions are linear with a ridge penalty and take one round. The propensities are logistic
regressions, fitted by Newton steps that take one round each. `meta_analysis` and `diagnostics` reuse both.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from unpooled.errors import DataError
from unpooled.maths.normal import independent_normals
from unpooled.maths.streams import stream
from unpooled.methods.aipw.model import (
    Estimates,
    PooledRegressions,
    Pooling,
    average,
    of_scores,
    of_weights,
    penalty,
    site_numbers,
    stacked_scores,
    stacked_weights,
    with_interval,
)
from unpooled.methods.aipw.settings import AIPWSettings
from unpooled.methods.method import Fit
from unpooled.optimise.procedure import Procedure, ask, side_by_side
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Draws, Parameters

EVERYBODY = -1
"""An empty fold: a regression that leaves it out is fitted to all people."""
STEPS = 8
"""Maximum number of Newton rounds; four or five are typical."""
ENOUGH = 1e-10
"""Squared Newton decrement below which the last step is taken without evaluating it."""


class Outcomes(NamedTuple):
    """Linear regressions by arm; mean, precision and noise belong to the last entry of the batch."""

    coefficients: np.ndarray
    """Coefficients of every site, [batch, site, arm, feature]."""
    mean: np.ndarray
    precision: np.ndarray
    """Posterior precision times the noise variance."""
    noise: np.ndarray
    """Residual variance."""


class Propensity(NamedTuple):
    """Coefficients of every site [batch, site, feature], and the convergence of the Newton steps."""

    coefficients: np.ndarray
    rounds: int
    converged: bool


class Nuisances(NamedTuple):
    """The fitted nuisance regressions; `treatment` is None if the estimator needs no propensities."""

    treatment: Propensity | None
    outcome: Outcomes


def fit(settings: AIPWSettings, pooling: PooledRegressions, seed: int, scale: float) -> Procedure[Fit]:
    """Fit the nuisance regressions, then estimate; `scale` is the outcome's sd, the unit of diagnostics."""
    without = held_out_folds(settings.folds)
    treatment = None if settings.estimator == "difference" else without
    outcome = without if settings.estimator == "aipw" else np.array([EVERYBODY])
    asked = outcome if outcome[-1] == EVERYBODY else np.append(outcome, EVERYBODY)
    known = yield from nuisances(pooling, settings.ridge, treatment, asked)
    if settings.estimator == "aipw":
        reply = yield from ask("scores", score_question(known, len(without)))
        people, found, stack = reply.per_site["people"][0], of_scores, stacked_scores
    else:
        reply = yield from ask("weighted_outcomes", _weight_question(known, pooling))
        _require_two(reply.per_site["people"])
        people, found, stack = reply.per_site["people"][0].sum(axis=1), of_weights, stacked_weights
    sums = jax.tree.map(lambda leaf: leaf[0], reply.per_site)
    sites, stacked = found(sums), found(stack(sums))
    drawn = coefficient_draws(pooling, known.outcome, settings.draws, stream(seed, "coefficient draws"))
    diagnostics = {
        "estimator": settings.estimator,
        "sites": site_numbers(sites, scale),
        "overall": with_interval(average(sites, people), scale),
        "stacked": with_interval(stacked, scale),
        **propensity_summary(known, reply),
    }
    return Fit(Draws(by_site=drawn), site_draws(sites, people, settings.draws, seed), diagnostics)


def budget(folds: int) -> dict[str, int]:
    """The number of θ for which each stage is asked at most, with fits by fold and to all people."""
    return {"outcome": folds + 1, "treatment": STEPS * (folds + 1), "scores": 1, "weighted_outcomes": 2}


def score_question(known: Nuisances, folds: int) -> Parameters:
    """Parameters of the `scores` stage: each site's coefficients by fold, [1, site, fold, …]."""
    assert known.treatment is not None
    own = {"treatment": known.treatment.coefficients, "outcome": known.outcome.coefficients[:folds]}
    per_site = {name: np.swapaxes(values, 0, 1)[None] for name, values in own.items()}
    return Parameters(per_site=per_site)


def _weight_question(known: Nuisances, pooling: PooledRegressions) -> Parameters:
    """Parameters of `weighted_outcomes`; without a propensity model all propensities are ½."""
    equal = np.zeros((1, pooling.sites, pooling.width))
    found = equal if known.treatment is None else known.treatment.coefficients
    return Parameters(per_site={"treatment": np.swapaxes(found, 0, 1)[None]})


def _require_two(people: np.ndarray) -> None:
    if np.any(people < 2):
        raise DataError(
            "weighted means need two people in each arm at every site",
            found="a site with fewer",
            remedy="leave the site out, or set estimator = 'aipw'",
        )


def site_draws(sites: Estimates, people: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Normal draws [K, m] of the sites' effects, jointly such that their average has the correct error."""
    share = people / people.sum()
    return (
        sites.estimate + independent_normals(count, share * sites.error, stream(seed, "site effects")) / share
    )


def propensity_summary(known: Nuisances, reply: Statistics) -> dict[str, object]:
    """Diagnostics of the propensity model: Newton rounds, convergence, and number of clipped values."""
    steps = known.treatment or Propensity(np.zeros(0), 0, True)
    return {
        "newton": {"rounds": steps.rounds, "converged": steps.converged},
        "clipped_propensities": int(reply.summed["clipped"].sum()),
    }


def held_out_folds(folds: int) -> np.ndarray:
    """The fold that each nuisance fit leaves out."""
    return np.arange(folds) if folds > 1 else np.array([EVERYBODY])


def nuisances(
    pooling: Pooling, ridge: float, treatment: np.ndarray | None, outcome: np.ndarray
) -> Procedure[Nuisances]:
    """Fit both regressions without each of the given folds; the last outcome fit uses all people."""
    if treatment is None:
        return Nuisances(None, (yield from regressions(pooling, outcome, ridge)))
    outcomes, propensities = yield from side_by_side(
        regressions(pooling, outcome, ridge), propensity(pooling, treatment, ridge)
    )
    return Nuisances(propensities, outcomes)


def regressions(pooling: Pooling, without: np.ndarray, ridge: float) -> Procedure[Outcomes]:
    """Ridge regressions of the outcome by arm, from normal equations: one round."""
    reply = yield from ask("outcome", Parameters(fixed={"without": without}))
    gram, score, rest = pooling.system(reply)
    _require_both_arms(rest["people"])
    precision = gram + np.diag(penalty(score.shape[-1], ridge))
    solution = np.linalg.solve(precision, score[..., None])[..., 0]
    squares = rest["square"] - 2.0 * np.sum(solution * score, axis=-1)
    squares = squares + np.einsum("...f,...fg,...g->...", solution, gram, solution)
    used = np.trace(np.linalg.solve(precision, gram), axis1=-2, axis2=-1)
    noise = np.maximum(squares, 0.0) / np.maximum(rest["people"] - used, 1.0)
    return Outcomes(pooling.own(solution), solution[-1], precision[-1], noise[-1])


def _require_both_arms(people: np.ndarray) -> None:
    if np.any(people == 0):
        raise DataError(
            "both arms must have people outside every fold",
            found="an arm whose people are all in one fold",
            remedy="set folds = 1, or leave out sites with a single person in an arm",
        )


def coefficient_draws(pooling: Pooling, fit: Outcomes, count: int, rng: np.random.Generator) -> Arrays:
    """Normal draws of every site's outcome coefficients about the fit to all people."""
    noise = rng.standard_normal((count, *fit.mean.shape))
    root = np.swapaxes(np.linalg.cholesky(fit.precision), -1, -2)
    deviation = np.linalg.solve(root, noise[..., None])[..., 0]
    spread = np.broadcast_to(fit.noise, (count, pooling.sites, 2))
    return {
        "outcome": pooling.own(fit.mean + np.sqrt(fit.noise)[..., None] * deviation),
        "noise": np.ascontiguousarray(spread),
    }


class NewtonState(NamedTuple):
    """The best point of each regression so far, and the next step to try."""

    point: np.ndarray
    step: np.ndarray
    value: np.ndarray
    gain: np.ndarray
    """Squared Newton decrement, twice the predicted gain of the step; infinite after a rejected step."""


def propensity(pooling: Pooling, without: np.ndarray, ridge: float) -> Procedure[Propensity]:
    """Ridge logistic regression of the treatment by Newton steps; a step that lowers the value is halved."""
    start = np.zeros(pooling.shape(len(without), 1))
    lowest = np.full(start.shape[:-1], -np.inf)
    state, number = NewtonState(start, np.zeros_like(start), lowest, -lowest), 0
    while number < STEPS and np.any(state.gain > ENOUGH):
        point, number = state.point + state.step, number + 1
        own = pooling.own(point)[:, :, 0]
        reply = yield from ask(
            "treatment", Parameters(fixed={"without": without}, per_site={"treatment": own})
        )
        state = _advance(state, point, *_newton_step(pooling, reply, point, ridge))
    near = state.gain <= ENOUGH
    found = pooling.own(state.point + np.where(near[..., None], state.step, 0.0))[:, :, 0]
    return Propensity(found, number, bool(np.all(near)))


def _newton_step(
    pooling: Pooling, reply: Statistics, point: np.ndarray, ridge: float
) -> tuple[np.ndarray, ...]:
    """The penalised log likelihood at a point, the Newton step from it, and twice its predicted gain."""
    gram, score, rest = pooling.system(reply)
    weight = penalty(point.shape[-1], ridge)
    value = rest["likelihood"] - 0.5 * np.sum(weight * point**2, axis=-1)
    slope = score - weight * point
    step = np.linalg.solve(gram + np.diag(weight), slope[..., None])[..., 0]
    return value, step, np.sum(slope * step, axis=-1)


def _advance(
    state: NewtonState, point: np.ndarray, value: np.ndarray, step: np.ndarray, gain: np.ndarray
) -> NewtonState:
    """Accept the evaluated point, or go back and halve the step if the value fell."""
    worse = value < state.value - 1e-9 * (1.0 + np.abs(value))
    rejected = worse[..., None]
    return NewtonState(
        np.where(rejected, state.point, point),
        np.where(rejected, 0.5 * state.step, step),
        np.where(worse, state.value, value),
        np.where(worse, np.inf, gain),
    )
