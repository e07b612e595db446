"""What a fit of FedCI is expected to ask: its usual number of evaluations, and the shapes of its parameters.

Evidences may be abstract, with shapes in place of arrays: that of the distances between sites grows with the
square of their number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from unpooled.maths.operations import Operations, operations
from unpooled.methods.expected import Course, Expected, evaluated, keys, numbers, whole
from unpooled.methods.fedci.held_out import PREDICTIVE_DRAWS
from unpooled.methods.fedci.laplace import FEWER, weights_and_shifts
from unpooled.methods.fedci.settings import FedCISettings
from unpooled.methods.fedci.stages import Evidence
from unpooled.methods.fedci.subsample import REFINEMENT, subsampled
from unpooled.optimise.minimise import STRETCH
from unpooled.optimise.objective import value_and_slopes
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import shapes_of_rows

FEW = 21
"""Evaluations, with the Hessian between them, of a minimisation that converges soon after the first Hessian:
19 to 25 in eight of twelve studies of 180 to 18,000 people at 3 to 10 sites, some of them in
benchmarks/plan.py. The others took 42, or the 50 that are allowed."""
FEW_ALONE = 10
"""The same for a single structure that may take no more than `STRETCH`; with folds, one of its problems
took all of them in most studies. It rests on one study of 3 × 120 people."""
UNFINISHED = 0.87
"""Share of a batch of problems that takes part in an evaluation; the others have converged. It was 0.7 to 1
in three studies."""


def expected(
    settings: FedCISettings, evidences: dict[str, Evidence], folds: int, covariates: int, *, large: bool
) -> Course:
    """The course of `fit` if it converges soon, and the longest."""
    shapes = {name: _shape(evidence, covariates) for name, evidence in evidences.items()}
    work = {name: _solves(shape, _per_theta(shape, large)) for name, shape in shapes.items()}

    def course(few: float, few_alone: float) -> Course:
        questions = [Expected("ridge", 1 + folds, Parameters(fixed={"fold": whole()}))]
        rounds = []
        for name, shape in shapes.items():
            most = settings.evaluations or shape.evidence.structure.evaluations
            short = most <= STRETCH
            spent = most if short and folds else int(min(most, few_alone if short else few))
            hessians = 0 if short else spent // (STRETCH + 1)
            questions += _minimised(name, shape, work[name], folds, spent - hessians, hessians, large=large)
            questions += _drawn(name, shape, work[name], settings.draws, large=large)
            rounds.append(2 * spent)
        # Ridge; minimisation; weights of the structures; Hessian; refinement; draws; effects.
        total = 1 + max(rounds) + bool(folds) + 2 + 2 * REFINEMENT * large + 2 + 1
        return Course(total, (*questions, *_held_out(list(shapes.values()), folds, covariates)))

    soon, longest = course(FEW, FEW_ALONE), course(np.inf, np.inf)
    return soon if soon.rounds == longest.rounds else replace(soon, longest=longest)


class Shape(NamedTuple):
    """One structure's evidence, with its hyperparameters and other parameters in their shapes."""

    evidence: Evidence
    free: Arrays
    fixed: Arrays
    features: int

    @property
    def size(self) -> int:
        """Number of hyperparameters."""
        return sum(np.size(leaf) for leaf in self.free.values())


def _shape(evidence: Evidence, covariates: int) -> Shape:
    free = evidence.structure.start(np.ones((2, covariates)), np.ones(2))
    fixed = {
        "fold": whole(),
        "noise": numbers(2),
        "direction": numbers(2, covariates),
        "rows": numbers(2),
        "propensity": numbers(covariates),
    }
    factors = jax.eval_shape(lambda one, free: one.structure.feature_factors(free), evidence, free)
    return Shape(evidence, free, fixed, factors.shape[0])


class Solves(NamedTuple):
    """The coordinator's work for one θ: of value and slopes, and of draws of weights and shifts."""

    slopes: Operations
    draws: Operations


def _per_theta(shape: Shape, large: bool) -> int:
    """Draws of weights and shifts for every θ."""
    return shape.evidence.structure.draws_per_theta * (FEWER if large else 1)


def _solves(shape: Shape, per_theta: int) -> Solves:
    leaves = (shape.free, shape.fixed, _statistics(shape))
    return Solves(
        operations(value_and_slopes, leaves, shape.evidence),
        operations(weights_and_shifts, (*leaves, keys(per_theta)), shape.evidence),
    )


def _minimised(
    name: str, shape: Shape, work: Solves, folds: int, evaluations: int, hessians: int, *, large: bool
) -> tuple[Expected, ...]:
    """Evaluations, one-sided Hessians between them and a two-sided one; for large sites, a refinement."""
    problems = UNFINISHED * (1 + folds) if folds else 1.0
    thetas = round(evaluations * problems) + hessians * (1 + shape.size) + 2 * shape.size
    parameters, asked = Parameters(shape.free, shape.fixed), evaluations + hessians + 1
    if not large:
        return evaluated(name, thetas, parameters, asked, work.slopes)
    return (
        *evaluated(subsampled(name), thetas, parameters, asked, work.slopes),
        *evaluated(name, REFINEMENT, parameters, REFINEMENT, work.slopes),
    )


def _drawn(name: str, shape: Shape, work: Solves, draws: int, *, large: bool) -> tuple[Expected, Expected]:
    """Two rounds of hyperparameters, and average effects under their weights and shifts."""
    each = _per_theta(shape, large)
    count = -(-draws // each)
    fixed = {"beta": numbers(each, 2, shape.features), "key": keys()}
    effect = Parameters(shape.free, fixed, {"site_shift": numbers(each, 2)})
    return (
        Expected(name, 2 * count, Parameters(shape.free, shape.fixed), 2, solve=work.draws),
        Expected(f"effect/{name}", count, effect),
    )


def _statistics(shape: Shape) -> Statistics:
    """The shapes of the statistics of all sites together, for one θ."""
    covariates = len(shape.fixed["propensity"])
    found = jax.eval_shape(
        lambda evidence, parameters, rows: evidence.statistics(parameters, rows),
        shape.evidence, Parameters(shape.free, shape.fixed), shapes_of_rows(16, covariates),
    )  # fmt: skip
    sites = shape.evidence.structure.site_distances.shape[0]
    own = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((sites, *leaf.shape), leaf.dtype), found.per_site)
    return Statistics(found.summed, own)


def _held_out(shapes: list[Shape], folds: int, covariates: int) -> tuple[Expected, ...]:
    """Predictions of held-out people: by the mean of the weights, and by draws of them."""
    if not folds:
        return ()
    more = {"share": numbers(len(shapes)), "log_odds": numbers(folds, 1 + covariates)}
    mean, drawn = (_without(shapes, folds, draws) for draws in (1, PREDICTIVE_DRAWS))
    distances = replace(drawn, fixed=drawn.fixed | more)
    return Expected("held_out", 1, mean), Expected("held_out/distances", 1, distances)


def _without(shapes: list[Shape], folds: int, draws: int) -> Parameters:
    """The fits without each fold, with draws of their weights."""
    fitted = tuple(
        {
            "free": jax.tree.map(lambda leaf: numbers(folds, *np.shape(leaf)), one.free),
            "beta": numbers(folds, draws, 2, one.features),
        }
        for one in shapes
    )
    shifts = tuple(numbers(folds, draws, 2) for _ in shapes)
    return Parameters(fixed={"fitted": fitted}, per_site={"site_shift": shifts})
