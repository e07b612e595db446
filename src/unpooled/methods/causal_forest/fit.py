"""The causal forest as a procedure, from start to end.

Bins are agreed on; forests of the propensity and of the mean outcome grow side by side; with treatments and
outcomes centred by them, the trees of effects grow; other people of their bags give the effects in the
leaves; doubly robust scores give average effects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from unpooled.maths.streams import key_data, stream
from unpooled.methods.aipw.checks import weight_checks, weights_of
from unpooled.methods.aipw.group_means import (
    average_outcomes,
    of_everybody,
    of_scores_by_group,
    over_fold_draws,
)
from unpooled.methods.aipw.model import (
    of_scores,
    scores_of_everybody,
    site_numbers,
    stacked_scores,
    with_interval,
)
from unpooled.methods.causal_forest.settings import (
    BAG,
    CausalForestContext,
    CausalForestSettings,
    effect_plan,
    nuisance_plan,
)
from unpooled.methods.method import Fit
from unpooled.models.trees import Grown, agree_on_bins, grow, leaf_sums
from unpooled.optimise.procedure import Procedure, ask, side_by_side
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import GROUPS, Arrays, Draws, Parameters


def fit(settings: CausalForestSettings, context: CausalForestContext, seed: int) -> Procedure[Fit]:
    edges = yield from agree_on_bins()
    rng = stream(seed, "trees")
    known = yield from nuisances(settings, context, edges, rng)
    effect = yield from effects(settings, context, known, rng)
    reply = yield from ask("scores", Parameters(fixed={**known, "effect": effect}))
    normals = rng.standard_normal((settings.draws, settings.trees // BAG))
    noise = np.asarray(reply.summed["squares"] / reply.summed["arms"])[0]
    draws = Draws({**known, "effect": effect, "normals": normals, "noise": noise})
    told = {"depth": effect_plan(settings, context).depth}
    found = averaged(context, reply, draws, told, settings.trim, settings.draws, seed)
    return replace(found, held_out=Parameters(fixed={**known, "effect": effect}))


def averaged(
    context: CausalForestContext,
    reply: Statistics,
    draws: Draws,
    told: Mapping[str, object],
    trim: float,
    count: int,
    seed: int,
) -> Fit:
    """Average effects by group, from doubly robust scores; diagnostics are in units of the outcome."""
    own, scale = scores_of_everybody(reply.per_site), context.outcome_sd
    population, sample = (
        over_fold_draws(of_scores_by_group(reply.per_site, one)) for one in ("products", "noise")
    )
    outcomes = average_outcomes(GROUPS, sample, population, count, seed)
    found, weights = of_everybody(population), weights_of(reply)
    diagnostics = {
        **({"sites": site_numbers(found.sites, scale)} if len(population.weight) == context.sites else {}),
        "overall": with_interval(found.overall, scale),
        "stacked": with_interval(
            of_scores(stacked_scores({name: value[0] for name, value in own.items()})), scale
        ),
        "weights": weights._asdict(),
        **told,
    }
    return Fit(draws, outcomes, diagnostics, weight_checks(weights, trim))


def nuisances(
    settings: CausalForestSettings, context: CausalForestContext, edges: np.ndarray, rng: np.random.Generator
) -> Procedure[Arrays]:
    """The forests of the propensity and the mean outcome, with the edges of their bins."""
    plan, names = nuisance_plan(settings, context), ("treatment", "outcome")
    keys = [key_data(rng, 1) for _ in names]
    streams = rng.spawn(len(names))
    grown = yield from side_by_side(
        *[
            grow(name, plan, {"edges": edges, "key": key}, one)
            for name, key, one in zip(names, keys, streams, strict=True)
        ]
    )
    forests = {
        name: {**one.parameters(), "value": leaf_means(one), "key": key}
        for name, one, key in zip(names, grown, keys, strict=True)
    }
    return {"edges": edges, **forests}


def leaf_means(grown: Grown) -> np.ndarray:
    """num/den of the leaves, with one axis; 0 for leaves in which nobody is."""
    num, den = grown.sums[..., 0], grown.sums[..., 1]
    return (num / np.where(den > 0.0, den, np.inf)).reshape(1, -1)


def effects(
    settings: CausalForestSettings, context: CausalForestContext, known: Arrays, rng: np.random.Generator
) -> Procedure[Arrays]:
    """The forest of effects: num and den of the leaves are means over the people in them."""
    fixed = {**known, "key": key_data(rng, 1)}
    grown = yield from grow("effect", effect_plan(settings, context), fixed, rng)
    sums = yield from leaf_sums("leaves", grown, fixed)
    means = sums[..., :2] / np.where(sums[..., 2:] > 0.0, sums[..., 2:], np.inf)
    values = {name: means[..., place].reshape(1, -1) for place, name in enumerate(("num", "den"))}
    return {**grown.parameters(), **values, "key": fixed["key"]}
