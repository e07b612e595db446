"""CausalRFF as a procedure: fit the candidate models side by side and choose one by held-out density.

The module also defines the interface of a candidate and the result that it returns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from unpooled.maths.streams import key_data, stream
from unpooled.methods.method import Fit
from unpooled.models.calibration import Calibration
from unpooled.models.effects import BOOTSTRAP, average_outcomes
from unpooled.optimise.procedure import Procedure, ask, side_by_side
from unpooled.protocol.records import Check, Draws, Parameters


class CandidateFit(NamedTuple):
    """The fit of one candidate."""

    draws: Draws
    without: Draws | None
    """Draws of the fits without each fold, [fold, k, …]; None if no fold was held out."""
    diagnostics: dict[str, object]
    checks: tuple[Check, ...] = ()


class Candidate(Protocol):
    """A candidate model. Candidates run side by side, so the longest determines the number of rounds."""

    def learn(self, folds: int) -> Procedure[Any]:
        """Find the mode; `folds` is 0 if no fold is held out."""
        ...

    def sample(self, learned: Any, folds: int) -> Procedure[CandidateFit]:
        """Draw from the posterior about the mode, and from the fits without each fold."""
        ...


def fit(
    candidates: dict[str, Candidate], folds: int, seed: int, *, continuous: bool = True
) -> Procedure[Fit]:
    """Fit all candidates, choose the best, and ask for average effects; with one candidate `folds` is 0.

    The chosen model's distances of held-out outcomes are asked for in the same round as the effects.
    """
    learned = yield from side_by_side(*[each.learn(folds) for each in candidates.values()])
    steps = [each.sample(one, folds) for each, one in zip(candidates.values(), learned, strict=True)]
    found = dict(zip(candidates, (yield from side_by_side(*steps)), strict=True))
    density: dict[str, float] = {}
    if folds:
        density = yield from _held_out(found, folds)
    chosen = max(candidates, key=lambda name: density.get(name, 0.0))
    draws = found[chosen].draws
    # One question for each draw, or a single one for a bundle of draws.
    count = len(jax.tree.leaves(draws.shared)[0])
    fixed = {**draws.shared, BOOTSTRAP: key_data(stream(seed, "effects"), count)}
    reply, calibration = yield from side_by_side(
        ask(f"effect/{chosen}", Parameters(fixed=fixed, per_site=draws.by_site)),
        _calibrate(chosen, found[chosen].without if continuous else None),
    )
    diagnostics = {name: each.diagnostics for name, each in found.items()}
    diagnostics |= {"chosen": chosen, "held_out_density": density}
    effects = average_outcomes(reply.per_site)
    checks = found[chosen].checks
    if calibration is not None:
        checks = (*checks, calibration.check())
    return Fit(replace(draws, model=chosen), effects, diagnostics, checks, calibration)


def _held_out(found: dict[str, CandidateFit], folds: int) -> Procedure[dict[str, float]]:
    """Mean log density of held-out outcomes under the fits without their fold."""
    draws = [each.without for each in found.values() if each.without is not None]
    fixed = {"fold": np.arange(folds), "draws": tuple(one.shared for one in draws)}
    # Draws are [fold, draw, site, …]; parameters by site must be [fold, site, draw, …].
    by_site = jax.tree.map(lambda leaf: np.swapaxes(leaf, 1, 2), tuple(one.by_site for one in draws))
    reply = yield from ask("held_out", Parameters(fixed=fixed, per_site={"draws": by_site}))
    total = reply.summed["density"].sum(axis=0) / reply.summed["people"].sum()
    return {name: float(value) for name, value in zip(found, total, strict=True)}


def _calibrate(name: str, without: Draws | None) -> Procedure[Calibration | None]:
    """Distances of held-out outcomes from their prediction under one model; None if none are known."""
    yield from ()
    if without is None:
        return None
    shared = jax.tree.map(lambda leaf: np.asarray(leaf)[None], without.shared)
    # Draws are [fold, draw, site, …]; parameters by site must be [batch, site, fold, draw, …].
    own = jax.tree.map(lambda leaf: np.moveaxis(np.asarray(leaf), 2, 0)[None], without.by_site)
    reply = yield from ask(f"held_out/{name}", Parameters(fixed={"draws": shared}, per_site={"draws": own}))
    beyond, total, squares = (np.asarray(reply.summed[key][0]) for key in ("beyond", "total", "squares"))
    calibration = Calibration(beyond, total, squares)
    return calibration if calibration.known else None


def noise_of(draws: Draws, *, counts: bool) -> dict[str, object]:
    """The noise sd in standard units, a root mean square over draws and arms; of counts the dispersions."""
    noise = np.asarray(draws.shared["noise"])
    if not counts:
        return {"noise": float(np.sqrt(np.mean(noise)))}
    control, treated = noise.mean(axis=0)
    return {"dispersion": {"control": float(control), "treated": float(treated)}}
