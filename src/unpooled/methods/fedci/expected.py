"""What a fit of FedCI is expected to ask: the usual number of evaluations, and the shapes of parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from unpooled.maths.operations import Operations, operations
from unpooled.methods.expected import Course, Expected, evaluated, keys, numbers, whole
from unpooled.methods.fedci.expansion import EVALUATIONS, EXPANSIONS, FIRST, WITH_FOLDS, dispersion_of
from unpooled.methods.fedci.held_out import PREDICTIVE_DRAWS
from unpooled.methods.fedci.laplace import FEWER, OWN_EXPANSIONS
from unpooled.methods.fedci.posterior import prior_and_slopes_of
from unpooled.methods.fedci.refinement import REFINEMENT
from unpooled.methods.fedci.refinement import STRETCH as REFINED
from unpooled.methods.fedci.settings import FedCISettings
from unpooled.methods.fedci.stages import Evidence
from unpooled.methods.fedci.subsample import subsampled
from unpooled.methods.fedci.working_response import nothing_known
from unpooled.optimise.minimise import STRETCH
from unpooled.protocol.records import Arrays, Parameters

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


CALLS = 2_000_000
"""What the calls of NumPy for one θ take, in numbers that a program reads or writes in the same time."""


def expected(
    settings: FedCISettings,
    evidences: dict[str, Evidence],
    folds: int,
    covariates: int,
    *,
    large: bool,
    interval: int,
) -> Course:
    """The course of `fit` if it converges soon, and the longest."""
    shapes = {name: _shape(evidence, covariates) for name, evidence in evidences.items()}
    work = {name: _solves(shape, _per_theta(shape, large)) for name, shape in shapes.items()}

    def course(few: float, few_alone: float) -> Course:
        questions = [Expected("ridge", 1 + folds, Parameters(fixed={"fold": whole()}))]
        rounds = []
        for name, shape in shapes.items():
            most = settings.evaluations or shape.evidence.structure.evaluations
            if shape.evidence.link is not None:
                most = min(most, FIRST)
            short = most <= STRETCH
            spent = most if short and folds else int(min(most, few_alone if short else few))
            hessians = 0 if short else spent // (STRETCH + 1)
            further = EVALUATIONS if shape.evidence.link is not None else ()
            expanded, alone = sum(further), sum(further[WITH_FOLDS - 1 :])
            asked = spent - hessians + expanded
            first = _minimised(name, shape, work[name], folds, asked, alone, hessians, large=large)
            questions += [
                replace(one, share=1.0 / interval) if one.stage == subsampled(name) else one for one in first
            ]
            questions += _drawn(name, shape, work[name], settings.draws, large=large)
            counts = shape.evidence.link is not None and shape.evidence.link.counts
            if counts:
                about = Parameters(fixed={"fold": whole(), "about": shape.fixed["about"]})
                problems = EXPANSIONS + WITH_FOLDS * folds
                questions.append(Expected(dispersion_of(name), problems, about, EXPANSIONS))
            rounds.append(2 * (spent + expanded) + EXPANSIONS * counts)
        # Ridge; minimisation; weights of the structures; Hessian; refinement; draws; effects.
        refined = 2 * (REFINEMENT + REFINEMENT // REFINED - 1) * large
        drawn = max(_rounds_of_draws(shape, large) for shape in shapes.values())
        total = 1 + max(rounds) + bool(folds) + 2 + refined + drawn + 1
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

    @property
    def about(self) -> Arrays:
        """The point of expansion, if there is one."""
        return {name: self.fixed[name] for name in ("about",) if name in self.fixed}


def _shape(evidence: Evidence, covariates: int) -> Shape:
    free = evidence.structure.start(np.ones((2, covariates)), np.ones(2))
    fixed = {
        "fold": whole(),
        "noise": numbers(2),
        "direction": numbers(2, covariates),
        "rows": numbers(2),
        "propensity": numbers(covariates),
    }
    if evidence.link is not None:
        nothing = nothing_known(
            jax.tree.map(lambda leaf: np.asarray(leaf)[None], free), evidence.structure.width
        )
        fixed["about"] = jax.tree.map(lambda leaf: leaf[0], nothing)
    return Shape(evidence, free, fixed, evidence.structure.width)


def _rounds_of_draws(shape: Shape, large: bool) -> int:
    """In large studies draws stay as they are; elsewhere they are moved and, with a link, expanded about."""
    return 1 if large else 2 + OWN_EXPANSIONS * (shape.evidence.link is not None)


class Solves(NamedTuple):
    """The coordinator's work for one θ: of value and slopes, and of draws of weights and shifts."""

    slopes: Operations
    draws: Operations


def _per_theta(shape: Shape, large: bool) -> int:
    """Draws of weights and shifts for every θ."""
    return shape.evidence.structure.draws_per_theta * (FEWER if large else 1)


def _solves(shape: Shape, per_theta: int) -> Solves:
    structure = shape.evidence.structure
    leaves = (shape.free, shape.fixed, jax.tree.map(lambda leaf: leaf[0], structure.zero_slopes(1)))
    prior = operations(prior_and_slopes_of, leaves, structure)
    sites, references = structure.site_distances.shape
    size = 2 * (structure.width + 1 + references)
    # A factor of the precision; for slopes its inverse and products with it; sums over the sites.
    factor, sums = size**3 / 3.0, 4.0 * sites * size * references
    draws = Operations(factor + sums + per_theta * size * (size + sites), CALLS, 0)
    slopes = Operations(8.0 * factor + sums + 12.0 * sites * size**2, 2 * CALLS + 20 * size**2, 0)
    return Solves(prior.plus(slopes), prior.plus(draws))


def _minimised(
    name: str, shape: Shape, work: Solves, folds: int, evaluations: int, alone: int, hessians: int, *,
    large: bool,
) -> tuple[Expected, ...]:  # fmt: skip
    """Evaluations, of which `alone` are of all people only, one-sided Hessians between them and a two-sided
    one; for large sites, a refinement."""
    problems = UNFINISHED * (1 + folds) if folds else 1.0
    thetas = round((evaluations - alone) * problems) + alone + hessians * (1 + shape.size) + 2 * shape.size
    parameters, asked = Parameters(shape.free, shape.fixed), evaluations + hessians + 1
    if not large:
        return evaluated(name, thetas, parameters, asked, work.slopes)
    between = REFINEMENT // REFINED - 1
    thetas, asked = thetas + between * (1 + shape.size), asked + between
    return (
        *evaluated(subsampled(name), thetas, parameters, asked, work.slopes),
        *evaluated(name, REFINEMENT, parameters, REFINEMENT, work.slopes),
    )


def _drawn(name: str, shape: Shape, work: Solves, draws: int, *, large: bool) -> tuple[Expected, Expected]:
    """Hyperparameters, in several rounds unless the study is large, and average effects of their weights."""
    each = _per_theta(shape, large)
    count, rounds = -(-draws // each), _rounds_of_draws(shape, large)
    log_odds = numbers(1 + shape.fixed["propensity"].shape[0])
    fixed = {"beta": numbers(each, 2, shape.features), "key": keys(), "log_odds": log_odds, **shape.about}
    effect = Parameters(shape.free, fixed, {"site_shift": numbers(each, 2)})
    return (
        Expected(name, rounds * count, Parameters(shape.free, shape.fixed), rounds, solve=work.draws),
        Expected(f"effect/{name}", count, effect),
    )


def _held_out(shapes: list[Shape], folds: int, covariates: int) -> tuple[Expected, ...]:
    """Predictions of held-out people: by the mean of the weights, and by draws of them."""
    if not folds:
        return ()
    more = {"share": numbers(len(shapes)), "log_odds": numbers(folds, 1 + covariates)}
    mean, drawn = (_without(shapes, folds, draws) for draws in (1, PREDICTIVE_DRAWS))
    if shapes[0].evidence.link is not None:
        return (Expected("held_out", 1, mean),)
    distances = replace(drawn, fixed=drawn.fixed | more)
    return Expected("held_out", 1, mean), Expected("held_out/distances", 1, distances)


def _without(shapes: list[Shape], folds: int, draws: int) -> Parameters:
    """The fits without each fold, with draws of their weights."""
    fitted = tuple(
        {
            "free": jax.tree.map(lambda leaf: numbers(folds, *np.shape(leaf)), one.free),
            "beta": numbers(folds, draws, 2, one.features),
            **jax.tree.map(lambda leaf: numbers(folds, *np.shape(leaf)), one.about),
        }
        for one in shapes
    )
    shifts = tuple(numbers(folds, draws, 2) for _ in shapes)
    return Parameters(fixed={"fitted": fitted}, per_site={"site_shift": shifts})
