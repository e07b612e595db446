"""Boosted arms as a procedure: bins, steps of boosting, how many of them, and doubly robust scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unpooled.maths.streams import key_data, stream
from unpooled.maths.trees import BINS
from unpooled.methods.boosted_arms.settings import PARTS, BoostedArmsSettings, plan
from unpooled.methods.causal_forest.fit import averaged, leaf_means
from unpooled.methods.causal_forest.settings import CausalForestContext
from unpooled.methods.method import Fit
from unpooled.models.trees import agree_on_bins, grow
from unpooled.optimise.procedure import Procedure, ask, side_by_side
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Draws, Parameters


def fit(settings: BoostedArmsSettings, context: CausalForestContext, seed: int) -> Procedure[Fit]:
    rng = stream(seed, "trees")
    edges, first = yield from side_by_side(
        agree_on_bins(), ask("start", Parameters(fixed={"all": np.zeros(1)}))
    )
    boosted = yield from boost(settings, context, edges, start_values(first), rng)
    fixed = {"edges": edges, "models": boosted}
    held = yield from ask("held_out", Parameters(fixed=fixed))
    squares, people = (np.asarray(held.summed[name], float)[0] for name in ("squares", "people"))
    used = np.argmin(squares, axis=0)
    fixed = {"edges": edges, "models": {**boosted, "steps": used[None]}}
    reply = yield from ask("scores", Parameters(fixed=fixed))
    normals = rng.standard_normal((settings.draws, settings.folds))
    noise = np.asarray(reply.summed["squares"] / reply.summed["arms"])[0]
    told = {
        "steps": dict(zip(PARTS, used.tolist(), strict=True)),
        "held_out": dict(zip(PARTS, (squares.min(axis=0) / people).tolist(), strict=True)),
    }
    draws = Draws({**fixed, "normals": normals, "noise": noise})
    found = averaged(context, reply, draws, told, settings.trim, settings.draws, seed)
    return replace(found, held_out=Parameters(fixed=fixed))


def start_values(first: Statistics) -> np.ndarray:
    """The means of what is predicted in each part, without each fold: folds before parts."""
    people, total = (np.asarray(first.summed[name], float)[0] for name in ("people", "sum"))
    people, total = (one.sum(axis=0) - one for one in (people, total))
    return (total / np.maximum(people, 1.0)).ravel()


def boost(
    settings: BoostedArmsSettings,
    context: CausalForestContext,
    edges: np.ndarray,
    start: np.ndarray,
    rng: np.random.Generator,
) -> Procedure[Arrays]:
    """The models after all steps, in the form in which they are sent."""
    growing, steps = plan(settings, context), settings.steps
    inner, outer = growing.trees * (2**growing.depth - 1), growing.trees * 2**growing.depth
    feature, cut = np.zeros((steps, inner), int), np.full((steps, inner), BINS - 1)
    value = np.zeros((steps, outer))
    found: Arrays = {"start": start[None], "steps": np.zeros((1, len(PARTS)), int)}
    for step in range(steps):
        sent = {"feature": feature, "cut": cut, "value": value}
        models = {**found, **{name: one.reshape(1, -1).copy() for name, one in sent.items()}}
        fixed = {"edges": edges, "key": key_data(rng, 1), "models": models}
        grown = yield from grow("trees", growing, fixed, rng)
        feature[step], cut[step] = grown.tree.feature.ravel(), grown.tree.cut.ravel()
        value[step] = leaf_means(grown)[0]
        found = {**found, "steps": np.full((1, len(PARTS)), step + 1)}
    sent = {"feature": feature, "cut": cut, "value": value}
    return {**found, **{name: one.reshape(1, -1) for name, one in sent.items()}}
