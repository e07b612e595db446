"""Study diagnostics as a procedure: nuisance regressions, then one round for balance, overlap and estimates.

The procedure runs side by side with a method's fit, so it adds no rounds unless it is the longer of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from unpooled.errors import UnpooledError
from unpooled.methods.aipw.fit import budget as aipw_budget
from unpooled.methods.aipw.fit import expected as aipw_expected
from unpooled.methods.aipw.fit import score_question
from unpooled.methods.aipw.model import (
    Estimates,
    PooledRegressions,
    of_scores,
    of_weights,
    scores_of_everybody,
    stacked_scores,
    stacked_weights,
    weights_of_everybody,
)
from unpooled.methods.aipw.newton import STEPS
from unpooled.methods.aipw.regressions import held_out, nuisances
from unpooled.methods.aipw.stages import Outcome, Scores, Treatment, WeightedOutcomes
from unpooled.methods.diagnostics.balance import Balance, regressors
from unpooled.methods.expected import Course, Expected
from unpooled.models.over_all_sites import without_sites
from unpooled.optimise.procedure import Procedure, ask, side_by_side
from unpooled.protocol.messages import Ask, Question, Together
from unpooled.protocol.records import Arrays, Parameters, Record, Scaling
from unpooled.protocol.stage import Stage
from unpooled.study import Study

T = TypeVar("T")
PREFIX = "diagnostics/"
"""Prefix of the stages' names, which distinguishes them from the stages of the method."""
FOLDS, TRIM = 3, 0.01
"""AIPW's defaults; the folds are drawn once."""
BALANCING = 1.0
"""Penalty of the regression whose weights are judged by how well they balance the arms, about one person."""
PLANS = (FOLDS, 1, 0)
"""Numbers of folds to choose from for small sites; with 0 there are no diagnostics."""
MOST_ROUNDS = STEPS + 1


def stages(scaling: Scaling) -> dict[str, Stage]:
    """All stages by name, identical at the coordinator and at the sites."""
    found, offsets = regressors(scaling), _pooling(scaling).offsets
    plain: dict[str, Stage] = {
        "treatment": Treatment(offsets),
        "outcome": Outcome(offsets),
        "scores": Scores(TRIM, adjusted=False, named=False),
        "weighted_outcomes": WeightedOutcomes(TRIM, adjusted=False, named=False),
        "balance": Balance(*map(jnp.asarray, (found.mean, found.sd, found.flag)), trim=TRIM),
    }
    return {f"{PREFIX}{name}": stage for name, stage in plain.items()}


def joined(own: dict[str, Stage], scaling: Scaling, *, diagnostics: bool, by_site: bool) -> dict[str, Stage]:
    """A method's stages, together with those of the diagnostics if the study requests them.

    In a study without effects by site, they send these as sums over sites.
    """
    return {**own, **stages(scaling)} if diagnostics else own if by_site else without_sites(own)


def of_study(study: Study, own: dict[str, Stage], scaling: Scaling) -> dict[str, Stage]:
    """All stages of a study whose diagnostics are computed if it requests them."""
    return joined(own, scaling, diagnostics=study.diagnostics and study.by_site, by_site=study.by_site)


def features(scaling: Scaling) -> int:
    """The largest number of features per person in any stage's statistics."""
    return 1 + regressors(scaling).width


def budget(folds: int) -> dict[str, int]:
    """The largest number of θ for which each stage may be asked."""
    return {f"{PREFIX}{name}": count for name, count in {**aipw_budget(folds), "balance": 1}.items()}


def expected(scaling: Scaling, folds: int) -> Course:
    """What the diagnostics usually ask, beside a fit."""
    pooling = _pooling(scaling)
    found = aipw_expected(pooling, folds, 1, system=pooling.shape(1, 1)[-1])
    own = Parameters(per_site={"treatment": np.zeros((folds, pooling.width))})
    more = (Expected("weighted_outcomes", 2, own), Expected("balance", 1, own))
    return Course(found.rounds, (*found.questions, *more)).prefixed(PREFIX)


@dataclass(frozen=True)
class Unavailable(Record):
    """The reason why there are no diagnostics."""

    reason: str


@dataclass(frozen=True)
class DiagnosticStatistics(Record):
    """The statistics that the sites sent for the diagnostics, in standard units."""

    site_people: np.ndarray
    """Number of people, or of clusters."""
    site_weights: np.ndarray
    """Sum of the sampling weights; the number of people if there are none."""
    site_estimates: np.ndarray
    """Each site's doubly robust estimate."""
    site_errors: np.ndarray
    aipw: tuple[float, float]
    """Estimate and standard error over all people; likewise `ipw` and `difference`."""
    ipw: tuple[float, float]
    difference: tuple[float, float]
    arm_means: np.ndarray
    """Weighted means of the outcome by arm."""
    summed: Arrays
    """Statistics of the `balance` stage, summed over sites."""
    per_site: Arrays
    """Statistics of the `balance` stage by site; the sites withhold small groups."""
    clipped: int
    rounds: int
    converged: bool


def diagnose(scaling: Scaling, folds: int = FOLDS) -> Procedure[DiagnosticStatistics | Unavailable]:
    """Run the diagnostics; an error ends them with its reason and does not stop the fit."""
    try:
        return (yield from _prefixed(_diagnose(scaling, folds)))
    except UnpooledError as error:
        return Unavailable(f"{error.expected}; found {error.found}")
    except np.linalg.LinAlgError:
        return Unavailable("the regressions must have unique solutions; found a singular matrix")


def _diagnose(scaling: Scaling, folds: int) -> Procedure[DiagnosticStatistics]:
    without, pooling = held_out(folds), _pooling(scaling)
    if scaling.known.one_arm:  # with an intercept of its own, the propensity at such a site would be 0 or 1
        pooling = pooling._replace(offsets=False)
    known = yield from nuisances(pooling, None, without, without, BALANCING if folds > 1 else None)
    assert known.treatment is not None
    own = np.repeat(known.treatment.coefficients[-1][:, None], folds, axis=1)
    # Zero coefficients give everybody a propensity of ½, hence equal weights: the unadjusted difference.
    both = {"treatment": np.stack([own, np.zeros_like(own)])}
    scores, weighted, balance = yield from side_by_side(
        ask("scores", score_question(known, folds)),
        ask("weighted_outcomes", Parameters(per_site=both)),
        ask("balance", Parameters(per_site={"treatment": own[None]})),
    )
    sums = jax.tree.map(lambda leaf: leaf[0], scores_of_everybody(scores.per_site))
    by_arm = weights_of_everybody(weighted.per_site)
    adjusted, plain = (jax.tree.map(lambda leaf, i=i: leaf[i], by_arm) for i in (0, 1))
    sites = of_scores(sums)
    return DiagnosticStatistics(
        site_people=sums["people"],
        site_weights=sums["weight"],
        site_estimates=sites.estimate,
        site_errors=sites.error,
        aipw=_pair(of_scores(stacked_scores(sums))),
        ipw=_pair(of_weights(stacked_weights(adjusted))),
        difference=_pair(of_weights(stacked_weights(plain))),
        arm_means=stacked_weights(adjusted)["mean"],
        summed=jax.tree.map(lambda leaf: leaf[0], balance.summed),
        per_site=jax.tree.map(lambda leaf: leaf[0], balance.per_site),
        clipped=int(scores.summed["clipped"].sum()),
        rounds=known.treatment.rounds,
        converged=known.treatment.converged,
    )


def _pair(found: Estimates) -> tuple[float, float]:
    return float(found.estimate), float(found.error)


def _pooling(scaling: Scaling) -> PooledRegressions:
    return PooledRegressions(scaling.sites, features(scaling), scaling.sites > 1)


def _prefixed(procedure: Procedure[T]) -> Procedure[T]:
    """The same procedure, with `PREFIX` added to the names of the stages it asks for."""
    try:
        question = next(procedure)
        while True:
            question = procedure.send((yield _renamed(question)))
    except StopIteration as done:
        return done.value
    finally:
        procedure.close()


def _renamed(question: Question) -> Question:
    if isinstance(question, Together):
        return Together(tuple(_renamed(part) for part in question.questions))
    assert isinstance(question, Ask)
    return Ask(f"{PREFIX}{question.stage}", question.parameters)
