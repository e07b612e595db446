"""What a fit of CausalRFF is expected to ask: its usual number of rounds, and its parameters' shapes."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from unpooled.maths.operations import Operations
from unpooled.methods.causal_rff.classes.candidate import FOLD_ROUNDS
from unpooled.methods.causal_rff.classes.em import PRUNED
from unpooled.methods.causal_rff.classes.gibbs import kept
from unpooled.methods.causal_rff.observed.candidate import FOLD_DRAWS, FOLD_STEPS, STEPS
from unpooled.methods.causal_rff.observed.regression import Design
from unpooled.methods.causal_rff.paper import candidate as gaussian
from unpooled.methods.causal_rff.paper.functions import StructuralFunctions
from unpooled.methods.causal_rff.settings import CausalRFFSettings
from unpooled.methods.expected import Course, Expected, keys, numbers, whole
from unpooled.models.effects import BOOTSTRAP
from unpooled.optimise.stochastic import usual_rounds
from unpooled.protocol.records import Arrays, Draws, Parameters

CONVERGED, FOLDS_CONVERGED = 26, 7
"""Rounds of EM until all numbers of classes have converged, and those without a fold, from the mode of all:
19 to 30, and 5 to 9, in three draws of the paper's simulation."""
CHOSEN = 6
"""Number of classes that is taken to be chosen if there is a choice: a guess."""
SOLVED = 40
"""Evaluations of the evidence, with its slope, that find a mode of the variances: a guess, as is the
work of a step of the latent classes."""

REGRESSED, LEARNT, DRAWN = 1050, 2300, 1500
"""Steps of the coordinator's programs: of the regressions, of EM, and of Gibbs sampling."""


@dataclass(frozen=True)
class Candidate:
    """The course of one candidate, and the shapes of what it is asked for afterwards."""

    course: Course
    draw: Draws
    """One draw, or a bundle of all draws."""
    draws: int
    """Number of draws, or 1 for a bundle."""
    fold_draws: int
    """Draws of the fit without one fold."""
    fold_draw: Draws


def of_regression(
    settings: CausalRFFSettings, design: Design, width: int, folds: int, sites: int, *, family: str
) -> Candidate:
    """The candidate with observed confounders."""
    common, own = numbers(2, design.width), {"site": numbers(2, width)}
    fixed: Arrays = {"length": numbers(), "fold": whole()}
    draw = Draws({"common": common, "noise": numbers(2), "length": numbers()}, own)
    # A solve eliminates the sites, then factorises the common coefficients; slopes take twice as much.
    size = 2 * design.width
    products = 3.0 * SOLVED * (size**3 / 3.0 + 4.0 * sites * width * size**2)
    solve = Operations(products, steps=REGRESSED)
    lengths, steps = len(design.lengths), 1
    thetas, question = lengths * (1 + folds), Parameters(fixed=fixed)
    if family != "continuous":
        fixed |= {"common": common} | ({"dispersion": numbers(2)} if family == "count" else {})
        steps = STEPS + FOLD_STEPS * bool(folds)
        thetas, question = (
            STEPS * lengths + FOLD_STEPS * folds,
            Parameters({}, fixed, own),
        )
    course = Course(steps, (Expected("regression", thetas, question, steps, solve=solve),))
    return Candidate(course, draw, settings.draws, FOLD_DRAWS, draw)


def of_classes(
    settings: CausalRFFSettings, classes: tuple[int, ...], binary: int, numeric: int, folds: int, sites: int,
    *, chances: bool,
) -> Candidate:  # fmt: skip
    """The candidate with latent classes."""
    most, rounds, folded = max(classes), min(settings.rounds, CONVERGED), min(FOLD_ROUNDS, FOLDS_CONVERGED)
    models, every = len(classes), len(classes) * settings.starts
    thetas = every * min(rounds, PRUNED) + models * max(rounds - PRUNED, 0)
    chosen = most if models == 1 else min(CHOSEN, most)
    chains, sweeps = -(-settings.draws // kept(settings.sweeps)), settings.sweeps
    # Cells of arm and class are solved site by site, several times in every step.
    learning, drawing = (Operations(30.0 * sites * (2 * most) ** 3, steps=steps) for steps in (LEARNT, DRAWN))

    def asked(draw: Draws, **more: object) -> Parameters:
        return Parameters({}, {"views": draw.shared, "fold": whole(), **more}, draw.by_site)

    widest, draw = (_class_draw(count, binary, numeric, chances=chances) for count in (most, chosen))
    questions = [
        Expected("classes", thetas, asked(widest, temper=numbers()), rounds, solve=learning),
        Expected("classes/drawn", sweeps * chains, asked(draw, key=keys()), sweeps, solve=drawing),
    ]
    if folds:
        without = asked(draw, temper=numbers())
        questions.append(Expected("classes", folded * folds, without, folded, solve=learning))
    return Candidate(Course(rounds + sweeps, tuple(questions)), draw, settings.draws, 1, draw)


def _class_draw(classes: int, binary: int, numeric: int, *, chances: bool) -> Draws:
    """`ClassLogLikelihoods` as a site receives them."""
    shared = {
        "one": numbers(classes, binary),
        "zero": numbers(classes, binary),
        "centre": numbers(classes, numeric),
        "weight": numbers(classes, numeric),
        "level": numbers(classes),
        "noise": numbers(2),
    }
    own = {name: numbers(2, classes) for name in ("treatment", "outcome", "variance")}
    return Draws(shared, {"classes": numbers(classes), **own, "chance": numbers(2 * chances, 2, classes)})


def of_gaussian(
    settings: CausalRFFSettings, functions: StructuralFunctions, folds: int, sites: int
) -> Candidate:
    """The candidate with a Gaussian latent confounder; all sites receive the functions of all of them."""
    free = gaussian.shapes(functions, sites)
    rounds = usual_rounds(settings.gaussian_rounds)
    asked = Parameters(free, {"fold": whole(), "key": keys()})
    moments = Parameters(fixed={"point": free, "fold": whole(), "key": keys()})
    course = Course(
        rounds + 1,
        (
            Expected("gaussian", (1 + folds) * rounds, asked, rounds, gradient=True),
            Expected("gaussian/moments", gaussian.SETS + folds, moments),
        ),
    )
    point = {"point": free, "key": keys()}
    full, held = (
        Draws(point, {"coefficients": numbers(count, functions.width, 2)})
        for count in (settings.draws, gaussian.FOLD_DRAWS)
    )
    return Candidate(course, full, 1, 1, held)


def expected(candidates: dict[str, Candidate], folds: int, *, continuous: bool) -> Course:
    """All candidates side by side, then held-out densities, and effects under one of the candidates.

    Which one is chosen depends on the data; the one with the larger draws is taken.
    """
    together = Course(0, ())
    for one in candidates.values():
        together = together.beside(one.course)
    name = max(candidates, key=lambda name: candidates[name].draws * _size(candidates[name].draw))
    chosen = candidates[name]
    fixed = {**chosen.draw.shared, BOOTSTRAP: keys()}
    questions = [Expected(f"effect/{name}", chosen.draws, Parameters({}, fixed, chosen.draw.by_site))]
    if folds:
        several = [_repeated(one.fold_draw, one.fold_draws) for one in candidates.values()]
        shared, own = tuple(one.shared for one in several), tuple(one.by_site for one in several)
        density = Parameters({}, {"fold": whole(), "draws": shared}, {"draws": own})
        questions.append(Expected("held_out", folds, density))
        if continuous:
            held = _repeated(chosen.fold_draw, folds, chosen.fold_draws)
            distances = Parameters({}, {"draws": held.shared}, {"draws": held.by_site})
            questions.append(Expected(f"held_out/{name}", 1, distances))
    return Course(together.rounds + bool(folds) + 1, (*together.questions, *questions))


def _size(draw: Draws) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(draw))


def _repeated(draw: Draws, *count: int) -> Draws:
    """Several draws."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*count, *leaf.shape), leaf.dtype), draw)
