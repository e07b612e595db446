"""AIPW as a procedure: regressions without each fold, then one round of scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from unpooled.errors import DataError
from unpooled.maths.normal import independent_normals
from unpooled.methods.aipw.estimates import (
    Estimates,
    average,
    of_scores,
    of_weights,
    stacked_scores,
    stacked_weights,
    told,
    told_with_interval,
)
from unpooled.methods.aipw.newton import Propensity
from unpooled.methods.aipw.normal_equations import Shared
from unpooled.methods.aipw.nuisances import (
    EVERYBODY,
    Nuisances,
    coefficient_draws,
    judged_without,
    nuisances,
)
from unpooled.methods.aipw.settings import Settings
from unpooled.optimise.procedure import Procedure, ask
from unpooled.protocol.messages import Tree


class Fit(NamedTuple):
    """Draws of the outcome regressions, the sites' effects [K, m], and every estimate exactly."""

    draws: Tree
    effects: np.ndarray
    diagnostics: dict[str, Any]


def fit(settings: Settings, sharing: Shared, seed: int, scale: float) -> Procedure[Fit]:
    """`scale` is the outcome's sd: what is told is in the outcome's units."""
    without = judged_without(settings.folds)
    treatment = None if settings.estimator == "difference" else without
    outcome = without if settings.estimator == "aipw" else np.array([EVERYBODY])
    asked = outcome if outcome[-1] == EVERYBODY else np.append(outcome, EVERYBODY)
    known = yield from nuisances(sharing, settings.ridge, treatment, asked)
    if settings.estimator == "aipw":
        reply = yield from ask("scores", score_question(known, len(without)))
        people, found, stack = reply["each"]["people"][0], of_scores, stacked_scores
    else:
        reply = yield from ask("weighted_outcomes", _weight_question(known, sharing))
        _require_two(reply["each"]["people"])
        people, found, stack = reply["each"]["people"][0].sum(axis=1), of_weights, stacked_weights
    sums = jax.tree.map(lambda leaf: leaf[0], reply["each"])
    sites, stacked = found(sums), found(stack(sums))
    drawn = coefficient_draws(sharing, known.outcome, settings.draws, [seed, 4])
    diagnostics = {
        "estimator": settings.estimator,
        "sites": told(sites, scale),
        "overall": told_with_interval(average(sites, people), scale),
        "stacked": told_with_interval(stacked, scale),
        **told_of_fit(known, reply),
    }
    return Fit({"fixed": {}, "each": drawn}, site_draws(sites, people, settings.draws, seed), diagnostics)


def score_question(known: Nuisances, folds: int) -> Tree:
    """Every site gets its own coefficients of every fold: [1, site, fold, …]."""
    assert known.treatment is not None
    own = {"treatment": known.treatment.coefficients, "outcome": known.outcome.coefficients[:folds]}
    each = {name: np.swapaxes(values, 0, 1)[None] for name, values in own.items()}
    return {"free": {}, "fixed": {}, "each": each}


def site_draws(sites: Estimates, people: np.ndarray, count: int, seed: int) -> np.ndarray:
    """[K, m]: each site's normal, arranged so that the average over all people has its own error."""
    share = people / people.sum()
    return sites.estimate + independent_normals(count, share * sites.error, [seed, 5]) / share


def told_of_fit(known: Nuisances, reply: Tree) -> dict[str, Any]:
    """How the propensities came about."""
    steps = known.treatment or Propensity(np.zeros(0), 0, True)
    return {
        "newton": {"rounds": steps.rounds, "converged": steps.converged},
        "clipped_propensities": int(reply["total"]["clipped"].sum()),
    }


def _weight_question(known: Nuisances, sharing: Shared) -> Tree:
    """Without a treatment regression everybody's propensity is ½, so all weigh alike."""
    alike = np.zeros((1, sharing.sites, sharing.width))
    found = alike if known.treatment is None else known.treatment.coefficients
    return {"free": {}, "fixed": {}, "each": {"treatment": np.swapaxes(found, 0, 1)[None]}}


def _require_two(people: np.ndarray) -> None:
    if np.any(people < 2):
        raise DataError(
            "weighted means need two people in each arm at every site",
            found="a site with fewer",
            remedy="leave the site out, or estimator = 'aipw'",
        )
