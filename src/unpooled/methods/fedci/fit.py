"""FedCI's collapsed inference as a procedure, from start to end.

Ridge regressions give the starting values; the negative log evidence of each structure is minimised on all
people and without each fold; held-out errors give the stacking weights; the hyperparameters are drawn about
their posterior mode, weights and shifts from their exact posterior.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np

from unpooled.disclosure.by_site import Trace
from unpooled.methods.fedci.bounds import limits_of
from unpooled.methods.fedci.candidate import held_out_question
from unpooled.methods.fedci.checks import draws_check, noise_of_arms
from unpooled.methods.fedci.expansion import Expanded, dispersion_of, minimise_expanded
from unpooled.methods.fedci.held_out import by_site, calibrate, fits_without_folds, stack
from unpooled.methods.fedci.laplace import draw_hyperparameters, posterior_mode
from unpooled.methods.fedci.mixture import mix, mixed
from unpooled.methods.fedci.ridge import Ridges, fixed_parameters, ridges_of
from unpooled.methods.fedci.settings import FedCISettings
from unpooled.methods.fedci.stages import Evidence
from unpooled.methods.fedci.subsample import first_stage, structure_of
from unpooled.methods.method import Fit
from unpooled.models.effects import average_outcomes
from unpooled.optimise.lbfgs import Stopping
from unpooled.optimise.procedure import Procedure, ask, side_by_side
from unpooled.protocol.records import Arrays, AverageOutcomes, Draws, Parameters

FOLDS_COARSER = 10.0
"""Factor on the tolerance of the fits without a fold, which only serve to compare the structures."""


def fit(
    settings: FedCISettings,
    evidences: dict[str, Evidence],
    folds: int,
    seed: int,
    share: float = 1.0,
) -> Procedure[Fit]:
    """Fit and weight all structures; with `folds` equal to 0 there is a single structure.

    If `share` is below one, the steps before the draws use a subsample with that share of the people.
    Outcomes that are not continuous have no noise of their own, so that there is nothing to calibrate.
    """
    held = np.arange(-1, folds)
    ridge = yield from ask("ridge", Parameters(fixed={"fold": held}))
    starts = [ridges_of(jax.tree.map(lambda leaf, i=i: leaf[i], ridge.summed)) for i in range(len(held))]
    names = list(evidences)
    link = evidences[names[0]].link
    if link is not None:
        starts = [replace(ridge, noise=np.full(2, float(link.noise))) for ridge in starts]
    scaled = [replace(ridge, rows=share * ridge.rows) for ridge in starts]
    minimised = yield from side_by_side(
        *[_minimise(first_stage(name, share), evidences[name], scaled, held, settings) for name in names]
    )
    expanded = dict(zip(names, minimised, strict=True))
    weights, without = {names[0]: 1.0}, None
    if folds:
        weights = yield from stack(evidences, expanded, held, scaled)
        asked = fits_without_folds(evidences, expanded, held, scaled, seed)
        without = held_out_question(asked, weights, names)
    modes, calibration = yield from side_by_side(
        side_by_side(
            *[
                posterior_mode(name, evidences[name], expanded[name], starts[0], settings, share)
                for name in weights
            ]
        ),
        calibrate(evidences, expanded, held, scaled, weights, seed),
    )
    drawn = yield from side_by_side(
        *[
            draw_hyperparameters(
                name, evidences[name], mode, starts[0], expanded[name].of_all, settings, share, seed + i
            )
            for i, (name, mode) in enumerate(zip(weights, modes, strict=True))
        ]
    )
    found = dict(zip(weights, drawn, strict=True))
    draws = {name: one.draws for name, one in found.items()}
    replaced = float(sum(weight * found[name].replaced for name, weight in weights.items()))
    effects = yield from side_by_side(*[_average(name, draws[name], starts[0].log_odds) for name in weights])
    diagnostics = {
        name: {
            "objective": float(m.values[0]),
            "evaluations": m.evaluations,
            "history": Trace(m.history),
            "slopes": Trace(m.slopes),
            **({"pareto_shape": found[name].pareto_shape} if name in found else {}),
        }
        for name, (m, _) in expanded.items()
    }
    outcomes = mixed(dict(zip(weights, effects, strict=True)), weights, settings.draws)
    checks, noise = [draws_check(replaced)], None
    if link is None:
        if calibration is not None:
            noise = calibration.noise_of_arms()
            checks.append(calibration.check())
        if noise is None:
            log_sd = {name: one["free"]["noise"][:, None] for name, one in draws.items()}
            noise = noise_of_arms(mix(log_sd, weights, settings.draws))
        checks.append(noise.check())
    shared = Draws({"weights": weights, "structures": draws})
    told = {"weights": weights, "structures": diagnostics}
    return Fit(shared, outcomes, told, tuple(checks), calibration, noise, without)


def _minimise(
    name: str, evidence: Evidence, starts: list[Ridges], held: np.ndarray, settings: FedCISettings
) -> Procedure[Expanded]:
    """Minimise one structure's objective on all people and without each fold, in one batch."""
    evaluations = settings.evaluations or evidence.structure.evaluations
    stopping = Stopping(evaluations, settings.tolerance, FOLDS_COARSER)
    points = [evidence.structure.start(ridge.directions, ridge.noise) for ridge in starts]
    scales = [evidence.structure.scales(ridge.noise, float(ridge.rows.min())) for ridge in starts]
    batch, units = (jax.tree.map(lambda *leaves: np.stack(leaves), *part) for part in (points, scales))
    box = limits_of(evidence.structure.bounds(), points[0])
    fixed = fixed_parameters(starts, held)
    stage = dispersion_of(structure_of(name))
    return (yield from minimise_expanded(name, evidence, batch, units, fixed, stopping, box, stage))


def _average(name: str, draws: Arrays, log_odds: np.ndarray) -> Procedure[AverageOutcomes]:
    """Draws of the mean outcomes."""
    fixed = {key: draws[key] for key in ("beta", "key")}
    fixed["log_odds"] = np.repeat(log_odds[None], len(draws["beta"]), axis=0)
    if "about" in draws:
        fixed["about"] = draws["about"]
    own = {"site_shift": by_site(draws["shift"])}
    reply = yield from ask(f"effect/{name}", Parameters(draws["free"], fixed, own))
    return average_outcomes(reply.per_site, overlap=True)
