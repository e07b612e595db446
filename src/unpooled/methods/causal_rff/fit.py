"""CausalRFF as a procedure: fit the candidates side by side, choose by held-out density, average effects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from unpooled.methods.method import Fit
from unpooled.optimise.procedure import Procedure, ask, side_by_side
from unpooled.protocol.records import Draws, Parameters


def fit(candidates: dict[str, Candidate], folds: int) -> Procedure[Fit]:
    """With several candidates, people held out decide; with one, `folds` is 0 and nobody is."""
    learned = yield from side_by_side(*[each.learn(folds) for each in candidates.values()])
    steps = [each.sample(one, folds) for each, one in zip(candidates.values(), learned, strict=True)]
    found = dict(zip(candidates, (yield from side_by_side(*steps)), strict=True))
    density: dict[str, float] = {}
    if folds:
        density = yield from _held_out(found, folds)
    chosen = max(candidates, key=lambda name: density.get(name, 0.0))
    draws = found[chosen].draws
    reply = yield from ask(f"effect/{chosen}", Parameters(fixed=draws.shared, per_site=draws.by_site))
    diagnostics = {name: each.diagnostics for name, each in found.items()}
    diagnostics |= {"chosen": chosen, "held_out_density": density}
    # [draws, sites], or of a bundle of draws [1, sites, draws].
    effects = np.asarray(reply.per_site["effect"])
    if effects.ndim == 3:
        effects = np.concatenate(np.swapaxes(effects, 1, 2))
    return Fit(replace(draws, model=chosen), effects, diagnostics)


def _held_out(found: dict[str, CandidateFit], folds: int) -> Procedure[dict[str, float]]:
    """Mean log density of people's outcomes under the fits that did not see them."""
    draws = [each.without for each in found.values() if each.without is not None]
    fixed = {"fold": np.arange(folds), "draws": tuple(one.shared for one in draws)}
    # [fold, draw, site, …] as it is drawn, [fold, site, draw, …] as it travels.
    each = jax.tree.map(lambda leaf: np.swapaxes(leaf, 1, 2), tuple(one.by_site for one in draws))
    reply = yield from ask("held_out", Parameters(fixed=fixed, per_site={"draws": each}))
    total = reply.summed["density"].sum(axis=0) / reply.summed["people"].sum()
    return {name: float(value) for name, value in zip(found, total, strict=True)}


class CandidateFit(NamedTuple):
    """Draws of the parameters: shared by all sites and by site; the same from the
    fits without each fold, [fold, k, …] (None where nobody was held out); how it went."""

    draws: Draws
    without: Draws | None
    diagnostics: dict[str, Any]


def noise_sd(draws: Draws) -> float:
    """The noise's sd over draws and arms, in standard units."""
    return float(np.sqrt(np.mean(draws.shared["noise"])))


class Candidate(Protocol):
    """Fitted side by side with the others: the rounds are those of the longest."""

    def learn(self, folds: int) -> Procedure[Any]:
        """Find the mode; `folds` is 0 where nobody is held out."""
        ...

    def sample(self, learned: Any, folds: int) -> Procedure[CandidateFit]:
        """Draw from the posterior about it, and fit without each fold."""
        ...
