"""Both regressions side by side: of the treatment by Newton steps, of the outcome from sums of one round."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.errors import DataError
from unpooled.methods.aipw.newton import Propensity, propensity
from unpooled.methods.aipw.normal_equations import Sharing, penalty
from unpooled.optimise.procedure import Procedure, ask, side_by_side
from unpooled.protocol.records import Arrays, Parameters

EVERYBODY = -1
"""The fold that nobody is in."""


class Outcomes(NamedTuple):
    """Linear regressions by arm: coefficients of every batch entry, and of the last what draws need."""

    coefficients: np.ndarray
    """Every site's, [batch, site, arm, feature]."""
    mean: np.ndarray
    precision: np.ndarray
    """In units of the noise variance."""
    noise: np.ndarray
    """Variance of the residuals."""


class Nuisances(NamedTuple):
    """What scores are made of; `treatment` is None where no propensity is asked for."""

    treatment: Propensity | None
    outcome: Outcomes


def judged_without(folds: int) -> np.ndarray:
    """Which fold each fit leaves out."""
    return np.arange(folds) if folds > 1 else np.array([EVERYBODY])


def nuisances(
    sharing: Sharing, ridge: float, treatment: np.ndarray | None, outcome: np.ndarray
) -> Procedure[Nuisances]:
    """Without each of the folds named; the outcome's last entry is everybody's."""
    procedures: list[Procedure] = [regressions(sharing, outcome, ridge)]
    if treatment is not None:
        procedures.append(propensity(sharing, treatment, ridge))
    found = yield from side_by_side(*procedures)
    return Nuisances(found[1] if treatment is not None else None, found[0])


def regressions(sharing: Sharing, without: np.ndarray, ridge: float) -> Procedure[Outcomes]:
    """One round: nothing is asked of the rows that depends on a coefficient."""
    reply = yield from ask("outcome", Parameters(fixed={"without": without}))
    gram, score, rest = sharing.system(reply)
    _require_both_arms(rest["people"])
    precision = gram + np.diag(penalty(score.shape[-1], ridge))
    solution = np.linalg.solve(precision, score[..., None])[..., 0]
    squares = rest["square"] - 2.0 * np.sum(solution * score, axis=-1)
    squares = squares + np.einsum("...f,...fg,...g->...", solution, gram, solution)
    used = np.trace(np.linalg.solve(precision, gram), axis1=-2, axis2=-1)
    noise = np.maximum(squares, 0.0) / np.maximum(rest["people"] - used, 1.0)
    return Outcomes(sharing.own(solution), solution[-1], precision[-1], noise[-1])


def coefficient_draws(sharing: Sharing, fit: Outcomes, count: int, seed: list[int]) -> Arrays:
    """Draws of every site's outcome regressions of everybody, about their normal equations' solution."""
    noise = np.random.default_rng(seed).standard_normal((count, *fit.mean.shape))
    root = np.swapaxes(np.linalg.cholesky(fit.precision), -1, -2)
    apart = np.linalg.solve(root, noise[..., None])[..., 0]
    spread = np.broadcast_to(fit.noise, (count, sharing.sites, 2))
    return {
        "outcome": sharing.own(fit.mean + np.sqrt(fit.noise)[..., None] * apart),
        "noise": np.ascontiguousarray(spread),
    }


def _require_both_arms(people: np.ndarray) -> None:
    if np.any(people == 0):
        raise DataError(
            "both arms must have people outside every fold",
            found="an arm whose people are all in one fold",
            remedy="folds = 1, or leave out sites with a single person in an arm",
        )
