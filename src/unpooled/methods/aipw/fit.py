"""AIPW as a procedure: cross-fitted nuisance regressions, then one round of scores."""

from __future__ import annotations

import jax
import numpy as np

from unpooled.disclosure.by_site import BySite
from unpooled.errors import DataError
from unpooled.maths.operations import Operations
from unpooled.maths.streams import stream
from unpooled.methods.aipw.checks import weight_checks, weights_of
from unpooled.methods.aipw.fold_draws import median
from unpooled.methods.aipw.group_means import (
    average_outcomes,
    of_everybody,
    of_scores_by_group,
    of_weights_by_group,
    over_fold_draws,
)
from unpooled.methods.aipw.model import (
    Estimates,
    PooledRegressions,
    Pooling,
    average,
    of_scores,
    of_weights,
    scores_of_everybody,
    site_numbers,
    stacked_scores,
    stacked_weights,
    weights_of_everybody,
    with_interval,
)
from unpooled.methods.aipw.newton import STEPS
from unpooled.methods.aipw.penalties import GRID
from unpooled.methods.aipw.regressions import Nuisances, Outcomes, Propensity, held_out, nuisances
from unpooled.methods.aipw.settings import AIPWContext, AIPWSettings, outcome_family
from unpooled.methods.expected import Course, Expected, numbers, whole
from unpooled.methods.method import Fit
from unpooled.optimise.procedure import Procedure, ask
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import EVERYBODY, GROUPS, Arrays, Check, Draws, Parameters

NEWTON, CHOSEN = 5, 2
"""Newton rounds that a logistic regression usually takes (four or five in benchmarks/plan.py), and those in
which its penalty is chosen (a guess)."""


def fit(
    settings: AIPWSettings, pooling: PooledRegressions, seed: int, context: AIPWContext
) -> Procedure[Fit]:
    """Fit the nuisance regressions, then estimate; diagnostics are in units of the outcome."""
    scale, family = context.outcome_sd, outcome_family(context)
    folds, draws = settings.folds, settings.fold_draws
    treatment = None if settings.estimator == "difference" else held_out(folds, draws)
    outcome = held_out(folds, draws) if settings.estimator == "aipw" else held_out(1)
    known = yield from nuisances(pooling, settings.ridge, treatment, outcome, family=family)
    if settings.estimator == "aipw":
        reply = yield from ask("scores", score_question(known, folds, draws))
        own, found, stack = scores_of_everybody(reply.per_site), of_scores, stacked_scores
        means, in_sample = (of_scores_by_group(reply.per_site, one) for one in ("products", "noise"))
    else:
        reply = yield from ask("weighted_outcomes", _weight_question(known, pooling, folds, draws))
        own, found, stack = weights_of_everybody(reply.per_site), of_weights, stacked_weights
        _require_two(own["people"])
        means = in_sample = of_weights_by_group(reply.per_site)  # an upper bound, as Neyman's
    population, sample = over_fold_draws(means), over_fold_draws(in_sample)
    groups = (EVERYBODY,) if settings.estimator == "difference" else GROUPS
    outcomes = average_outcomes(groups, sample, population, settings.draws, seed)
    people = population.weight[:, 0]
    each = by_draw(own)
    drawn = coefficient_draws(pooling, known.outcome, settings.draws, stream(seed, "coefficient draws"))
    checked, words = _weight_summary(settings, reply)
    result = of_everybody(population)
    diagnostics = {
        "estimator": settings.estimator,
        **({"sites": site_numbers(result.sites, scale)} if len(people) == pooling.sites else {}),
        "overall": with_interval(result.overall, scale),
        "stacked": with_interval(median(together([found(stack(one)) for one in each])), scale),
        "fold_draws": _spread([average(found(one), people) for one in each], scale),
        **regression_summary(known),
        **words,
    }
    return Fit(Draws(by_site=drawn), outcomes, diagnostics, checked)


def budget(folds: int, draws: int = 1) -> dict[str, int]:
    """The number of θ for which each stage is asked at most."""
    batch = len(held_out(folds, draws).fold)
    return {
        "outcome": batch,
        "outcome_likelihood": STEPS * batch,
        "treatment": STEPS * batch,
        "scores": draws,
        "weighted_outcomes": max(draws, 2),
    }


def expected(
    pooling: Pooling,
    folds: int,
    draws: int,
    estimator: str = "aipw",
    *,
    system: int,
    systems: int = 1,
    linear: bool = True,
) -> Course:
    """The course of a fit whose regressions are `systems` systems of equations of size `system` each."""
    batch, width = len(held_out(folds, draws).fold), pooling.width
    fixed, draw = {"without": whole(), "draw": whole()}, {"draw": whole()}
    # By penalty of the grid and at the penalty chosen, where the outcome has two arms.
    once = systems * system**3 / 1.5
    outcome = Operations(products=2 * (1 + len(GRID)) * once)
    chosen = 1 + len(GRID) * CHOSEN / NEWTON
    thetas = batch if estimator == "aipw" else 1
    questions = [Expected("outcome", thetas, Parameters(fixed=fixed), 1, solve=outcome)]
    if not linear:
        own = Parameters(fixed=fixed, per_site={"outcome": numbers(2, width)})
        each = Operations(products=2 * chosen * once)
        questions.append(Expected("outcome_likelihood", NEWTON * thetas, own, NEWTON, solve=each))
    if estimator != "difference":
        own = Parameters(fixed=fixed, per_site={"treatment": numbers(width)})
        each = Operations(products=chosen * once)
        questions.append(Expected("treatment", NEWTON * batch, own, NEWTON, solve=each))
    both = {"treatment": numbers(folds, width), "outcome": numbers(folds, 2, width)}
    if estimator == "aipw":
        last = Expected("scores", draws, Parameters({}, draw, both))
    else:
        used = 1 if estimator == "difference" else folds
        question = Parameters({}, draw, {"treatment": numbers(used, width)})
        last = Expected("weighted_outcomes", 1 if estimator == "difference" else draws, question)
    return Course(2 if linear and estimator == "difference" else NEWTON + 1, (*questions, last))


def score_question(known: Nuisances, folds: int, draws: int = 1) -> Parameters:
    """Parameters of the `scores` stage: each site's coefficients by draw and fold, [draw, site, fold, …]."""
    assert known.treatment is not None
    own = {"treatment": known.treatment.coefficients, "outcome": known.outcome.coefficients}
    per_site = {name: by_fold(values, folds, draws) for name, values in own.items()}
    return Parameters(fixed={"draw": np.arange(draws)}, per_site=per_site)


def by_fold(values: np.ndarray, folds: int, draws: int) -> np.ndarray:
    """Coefficients [batch, site, …] as [draw, site, fold, …]; with folds, those of everybody are left out."""
    kept = values[: folds * draws]
    return np.swapaxes(kept.reshape(draws, folds, *kept.shape[1:]), 1, 2)


def _weight_question(known: Nuisances, pooling: PooledRegressions, folds: int, draws: int) -> Parameters:
    """Parameters of `weighted_outcomes`; without a propensity model all propensities are ½."""
    equal = np.zeros((1, pooling.sites, 1, pooling.width))
    treatment = known.treatment
    found = equal if treatment is None else by_fold(treatment.coefficients, folds, draws)
    return Parameters(fixed={"draw": np.arange(len(found))}, per_site={"treatment": found})


def by_draw(own: Arrays) -> list[Arrays]:
    """The sums by site of each draw of the folds."""
    return [jax.tree.map(lambda leaf, r=r: leaf[r], own) for r in range(len(own["people"]))]


def together(several: list[Estimates]) -> Estimates:
    """Estimates [draw, …]."""
    return Estimates(*(np.stack(part) for part in zip(*several, strict=True)))


def _require_two(people: np.ndarray) -> None:
    if np.any(people < 2):
        raise DataError(
            "weighted means need two people in each arm at every site",
            found="a site with fewer",
            remedy="leave the site out, or set estimator = 'aipw'",
        )


def regression_summary(known: Nuisances) -> dict[str, object]:
    """Diagnostics of the regressions: penalties, Newton rounds and convergence."""
    ridge = {
        f"outcome_{arm}": known.outcome.ridge[..., place] for place, arm in enumerate(("control", "treated"))
    }
    steps = known.treatment or Propensity(np.zeros(0), np.zeros(0), 0, True)
    if known.treatment is not None:
        ridge["treatment"] = steps.ridge
    fitted = {"rounds": known.outcome.rounds, "converged": known.outcome.converged}
    return {
        "outcome_newton": fitted,
        "ridge": {name: BySite(one) if np.ndim(one) else float(one) for name, one in ridge.items()},
        "newton": {"rounds": steps.rounds, "converged": steps.converged},
    }


def _weight_summary(settings: AIPWSettings, reply: Statistics) -> tuple[tuple[Check, ...], dict[str, object]]:
    """Checks and diagnostics of the weights; none for an unadjusted difference."""
    if settings.estimator == "difference":
        return (), {}
    found = weights_of(reply)
    return weight_checks(found, settings.trim), {"weights": found._asdict()}


def _spread(averages: list[Estimates], scale: float) -> dict[str, object]:
    """How far the estimates of single draws of the folds are apart."""
    each = [scale * float(one.estimate) for one in averages]
    return {"draws": len(each), "lowest": min(each), "highest": max(each)}


def coefficient_draws(pooling: Pooling, fit: Outcomes, count: int, rng: np.random.Generator) -> Arrays:
    """Normal draws of every site's outcome coefficients about the fit to all people."""
    noise = rng.standard_normal((count, *fit.mean.shape))
    root = np.swapaxes(np.linalg.cholesky(fit.precision), -1, -2)
    deviation = np.linalg.solve(root, noise[..., None])[..., 0]
    spread = np.broadcast_to(fit.noise, (count, pooling.sites, 2))
    return {
        "outcome": pooling.own(fit.mean + np.sqrt(fit.spread)[..., None] * deviation),
        "noise": np.ascontiguousarray(spread),
    }
