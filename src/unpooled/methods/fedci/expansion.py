"""Moving the point about which the log likelihood of 0/1 outcomes and counts is expanded.

The hyperparameters are minimised under one expansion, the posterior mean of the weights becomes the next
point of expansion, and so on. These are steps of Newton's method, of which a few suffice.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from unpooled.disclosure.effective_people import capped, spread_out
from unpooled.methods.fedci.posterior import (
    Posterior,
    posteriors,
    principal_deviations,
    weights_and_shifts,
)
from unpooled.methods.fedci.stages import Evidence, arm_indicators, in_use
from unpooled.methods.fedci.working_response import DEVIATIONS, DISPERSIONS, latent, nothing_known
from unpooled.optimise.lbfgs import Box, Stopping
from unpooled.optimise.minimise import minimise
from unpooled.optimise.objective import Minima
from unpooled.optimise.procedure import Procedure, ask
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds, Stage

FIRST = 15
"""Maximum number of evaluations under the first expansion, which is about the outcomes themselves."""
EVALUATIONS = (8, 8, 6, 6)
"""Maximum numbers of evaluations of the objective under each further expansion."""
WITH_FOLDS = 3
"""Number of expansions for the fits without a fold, which only serve to compare the structures."""
EXPANSIONS = 1 + len(EVALUATIONS)


class Expanded(NamedTuple):
    """Minima, with the fixed parameters by which they were found."""

    minima: Minima
    about: Arrays
    """The point of expansion of each problem, in the form of fixed parameters; nothing without a link."""

    @property
    def of_all(self) -> Arrays:
        """That of the first problem, which leaves out no fold."""
        return jax.tree.map(lambda leaf: np.asarray(leaf)[0], self.about)


def minimise_expanded(
    name: str, evidence: Evidence, starts: Arrays, scales: Arrays, fixed: Arrays, stopping: Stopping,
    box: Box, stage: str,
) -> Procedure[Expanded]:  # fmt: skip
    """Minimise a batch of problems; with a link, under one expansion after the other.

    `stage` is the one that is asked for the dispersions of counts, of all people.
    """
    if evidence.link is None:
        return Expanded((yield from minimise(name, evidence, starts, scales, fixed, stopping, box)), {})
    about, free = nothing_known(starts, evidence.structure.width), starts
    each: list[Expanded] = []
    for place, evaluations in enumerate((FIRST, *EVALUATIONS)):
        if place == WITH_FOLDS:
            free, scales, fixed, about = jax.tree.map(lambda leaf: leaf[:1], (free, scales, fixed, about))
        limit = replace(stopping, evaluations=min(stopping.evaluations, evaluations))
        asked = {**fixed, "about": about}
        found = yield from minimise(name, evidence, free, scales, asked, limit, box)
        free = found.free
        about = yield from _next(evidence, found, asked, stage)
        each.append(Expanded(found, {"about": about}))
    whole = _with_folds(each[-1], each[WITH_FOLDS - 1])
    together = {
        key: tuple(chain(*(getattr(one.minima, key) for one in each))) for key in ("history", "slopes")
    }
    spent = sum(one.minima.evaluations for one in each)
    return whole._replace(minima=replace(whole.minima, evaluations=spent, **together))


def _with_folds(first: Expanded, every: Expanded) -> Expanded:
    """The first problem as it was found last, and the others as they were left."""

    def joined(own: Any, others: Any) -> Any:
        return jax.tree.map(lambda one, all_: np.concatenate([one, np.asarray(all_)[1:]]), own, others)

    parts = ("free", "values", "statistics")
    both = {name: joined(getattr(first.minima, name), getattr(every.minima, name)) for name in parts}
    return Expanded(replace(first.minima, **both), joined(first.about, every.about))


def _next(evidence: Evidence, minima: Minima, fixed: Arrays, stage: str) -> Procedure[Arrays]:
    """The posterior mean of the weights, as the next point of expansion, and the dispersions there."""
    assert minima.statistics is not None and evidence.link is not None
    fitted = posteriors(evidence, minima.free, fixed, minima.statistics)
    about = {**fixed["about"], **expansion_about(evidence, minima.free, fitted)}
    if not evidence.link.counts:
        return about
    reply = yield from ask(stage, Parameters(fixed={"fold": fixed["fold"], "about": about}))
    return {**about, "dispersion": dispersions(reply.summed)}


def expansion_about(evidence: Evidence, free: Arrays, fitted: list[Posterior]) -> Arrays:
    """What the expansion about these posteriors needs, but for dispersions."""
    beta, _ = weights_and_shifts(evidence, fitted, None, 1)
    deviations = principal_deviations(evidence, fitted, DEVIATIONS)
    return {"free": free, "beta": beta[:, 0], "deviations": deviations, "known": np.ones(len(beta))}


def dispersions(sums: Arrays) -> np.ndarray:
    """The dispersion of each problem and arm with which the squared Pearson residuals are one on average."""
    ratio = sums["pearson"] / sums["people"][..., None]
    # They fall as the dispersion rises; Poisson counts, or fewer, have the smallest.
    logs, smallest = np.log(DISPERSIONS), np.log(np.maximum(ratio, 1e-12))
    each = [[np.exp(np.interp(0.0, -arm, logs)) for arm in problem] for problem in smallest]
    return np.array(each)


def dispersion_of(name: str) -> str:
    """The name of the stage of a structure's dispersions."""
    return f"{name}/dispersion"


class Dispersion(Stage):
    """Squared Pearson residuals of counts about the point of expansion, for a grid of dispersions."""

    evidence: Evidence
    often: ClassVar[bool] = False
    reveals: ClassVar[str] = (
        "for sums over sites, by arm: number of people, and sums of squared Pearson residuals of the counts "
        "for each of 28 dispersions"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        weights, link = in_use(rows, parameters.fixed), self.evidence.link
        assert link is not None
        # Without the remainder, which would take the place of the dispersion.
        about = parameters.fixed["about"]
        found = latent(self.evidence, about, rows, weights, remainder=False)
        spread = link.unit**2 * found.variance
        mean = link.family.mean(link.predictor(found.shared), spread)
        variance = mean + jnp.asarray(DISPERSIONS)[:, None] * mean**2
        arms = arm_indicators(rows.treatment).T * weights
        residual = (link.family.seen(rows.outcome) - mean) / jnp.sqrt(variance)
        # The mean is fitted: without its own variance, squared residuals would be too small.
        unknown = mean**2 * jnp.expm1(jnp.minimum(spread, 1.0)) / variance
        told = jnp.stack([spread_out(residual, jnp.sqrt(arm), rows.least) for arm in arms])
        square = jnp.einsum("an,akn->ak", arms, told**2)
        square += jnp.sum(capped(arms[:, None] * unknown, rows.least), axis=-1)
        return Statistics({"pearson": square, "people": arms.sum(axis=1)})

    def bounds(self) -> Bounds:
        return self.evidence.bounds()
