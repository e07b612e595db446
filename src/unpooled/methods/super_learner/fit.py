"""The super learner as a procedure: all candidates side by side, then weights, then average effects."""

from __future__ import annotations

from typing import Any

import numpy as np

from unpooled.maths.streams import stream
from unpooled.methods.causal_forest.fit import averaged
from unpooled.methods.method import Fit
from unpooled.methods.super_learner.settings import (
    CONSTANT,
    FOREST,
    Candidate,
    SuperLearnerSettings,
)
from unpooled.methods.super_learner.weights import stack, stretch
from unpooled.optimise.procedure import Procedure, ask, prefixed, side_by_side
from unpooled.protocol.records import Arrays, Draws, Parameters


def fit(settings: SuperLearnerSettings, candidates: dict[str, Candidate], seed: int) -> Procedure[Fit]:
    names = list(candidates)
    fits: tuple[Fit, ...] = yield from side_by_side(
        *[
            prefixed(one.method.fit(one.settings, one.context, seed), f"{name}/")
            for name, one in candidates.items()
        ]
    )
    found = dict(zip(names, fits, strict=True))
    asked = _question(found)
    reply = yield from ask("r_loss", asked)
    sums = {name: np.asarray(value, float)[0] for name, value in reply.summed.items()}
    weights = stack(sums["products"], float(sums["people"]), settings.simplicity)
    constant = np.array([[weights.constant, weights.error]])
    fixed = {**asked.fixed, "share": weights.share[None], "constant": constant}
    last = Parameters(fixed=fixed, per_site=asked.per_site)
    missed, scores = yield from side_by_side(ask("unexplained", last), ask("scores", last))
    factor = stretch(*(np.asarray(missed.summed[name], float)[0] for name in ("leaves", "variance")))
    normals = stream(seed, "trees", 1).standard_normal(settings.draws)
    shared = {
        "share": weights.share,
        "stretch": factor,
        "constant": weights.constant + weights.error * normals,
        "noise": np.asarray(scores.summed["squares"] / scores.summed["arms"])[0],
        "candidates": {name: one.draws.shared for name, one in found.items()},
    }
    draws = Draws(shared, {name: one.draws.by_site for name, one in found.items() if one.draws.by_site})
    shares = dict(zip([*names, CONSTANT], weights.share.tolist(), strict=True))
    losses = dict(zip([*names, CONSTANT, "stack"], weights.loss.tolist(), strict=True))
    told = {
        "weights_of_candidates": shares,
        "r_loss": losses,
        "stretch": factor,
        "candidates": {name: one.diagnostics for name, one in found.items()},
    }
    return averaged(candidates[FOREST].context, scores, draws, told, settings.trim, settings.draws, seed)


def _question(found: dict[str, Fit]) -> Parameters:
    """What the sites need to predict effects of held-out people by every candidate."""
    each = [one.held_out for one in found.values()]
    assert all(one is not None for one in each)
    forest = found[FOREST].held_out
    assert forest is not None
    fixed: Arrays = {**forest.fixed, "candidates": tuple(one.fixed for one in each if one is not None)}
    own: Any = tuple(one.per_site for one in each if one is not None)
    return Parameters(fixed=fixed, per_site={"candidates": own})
