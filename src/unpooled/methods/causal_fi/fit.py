"""CausalFI's data augmentation as a procedure: a linear start, trials of the structures, then sampling.

All chains start with linear outcomes. Each structure is then tried without every fold, and the one with the
smallest held-out error is sampled on all people, until the chains have mixed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import jax
import numpy as np

from unpooled.disclosure.by_site import Diagnostics
from unpooled.maths.streams import stream
from unpooled.methods.causal_fi.chain import Chain, begin
from unpooled.methods.causal_fi.posterior_sample import Length, sample
from unpooled.methods.causal_fi.sampler import AugmentationSampler, Run
from unpooled.methods.causal_fi.structures import STRUCTURES, BendStructure
from unpooled.methods.method import Fit
from unpooled.models.outcome_family import NegativeBinomial
from unpooled.optimise.procedure import Procedure, side_by_side
from unpooled.protocol.records import Draws

STARTING, STARTED, TRIED = 4, 6, 10
"""Chains and rounds of the linear start, and rounds of the trials."""
MARGIN = 0.02
"""Share of the error of a linear arm by which an arm that bends must be better."""


def fit(
    sampler: AugmentationSampler, names: tuple[str, ...], *, folds: int, length: Length
) -> Procedure[Fit]:
    """Choose a structure by held-out error and sample it; with a single structure, `folds` is 0."""
    initial = _stacked([begin(sampler.sizes, sampler.layout, sampler.family)] * STARTING)
    linear, everybody = STRUCTURES["linear"], np.full(STARTING, -1)
    started = yield from sampler.run(linear, initial, everybody, rounds=STARTED, use=0)
    tried = yield from side_by_side(
        *[
            _trial(sampler, STRUCTURES[name], started.chains, folds, use=index + 1)
            for index, name in enumerate(names)
        ]
    )
    runs = dict(zip(names, tried, strict=True))
    straight = {name: _linear_is_preferred(runs, name) for name in names}
    error = {name: _error(runs, name, straight[name]) for name in names}
    chosen = min(names, key=lambda name: error[name])
    best = _with_linear_arms(runs, chosen, straight[chosen])
    first: Chain = jax.tree.map(lambda leaf: leaf[np.arange(length.chains) % len(leaf)], best)
    found = yield from sample(sampler, STRUCTURES[chosen], first, length, len(names) + 1)
    diagnostics = {
        "structure": chosen,
        "held_out_error": error if folds else {},
        **_noise(sampler, found.draws),
        "bend": {"control": float(first.bend[0, 0]), "treated": float(first.bend[0, 1])},
        "mixing": found.mixing.summary(),
        "importance": found.importance,
    }
    draws, checks = replace(found.draws, model=chosen), found.mixing.checks("most_sweeps")
    return Fit(draws, found.effects, diagnostics, checks)


def _noise(sampler: AugmentationSampler, draws: Draws) -> Diagnostics:
    """The noise sd or, for a count, the dispersion in each arm: the mean of its draws."""
    noise = np.asarray(draws.shared["noise"])
    if isinstance(sampler.family, NegativeBinomial):
        control, treated = noise.mean(axis=0)
        return {"dispersion": {"control": float(control), "treated": float(treated)}}
    return {"noise": float(np.sqrt(noise.mean()))}


def _trial(
    sampler: AugmentationSampler, structure: BendStructure, started: Chain, folds: int, use: int
) -> Procedure[Run]:
    """Fit a structure without each fold (or to all people) from every start; keep each arm's best start."""
    held = np.arange(folds) if folds else np.array([-1])
    rng = stream(sampler.seed, "index starts", use)
    chains = []
    for index, (_, (bend, far)) in enumerate(product(held, structure.starts)):
        one = jax.tree.map(lambda leaf, index=index: leaf[index % len(leaf)], started)
        start = np.stack([structure.start(np.asarray(linear), bend, far, rng) for linear in one.mode])
        chains.append(one._replace(outcome=start, mode=start, bend=np.full(2, bend)))
    fold = np.repeat(held, len(structure.starts))
    run = yield from sampler.run(structure, _stacked(chains), fold, rounds=TRIED, use=use)
    first = len(structure.starts) * np.arange(len(held))[:, None]
    best = first + np.argmin(run.misfit.reshape(len(held), -1, 2), axis=1)
    chosen = [np.take_along_axis(part, best, axis=0) for part in (run.held_out, run.misfit)]
    return Run(_of_arms(run.chains, best), *chosen)


def _linear_is_preferred(runs: dict[str, Run], name: str) -> np.ndarray:
    """In which arms a linear outcome is preferred to the structure, by the errors of the held-out people.

    An arm that bends must be better by 2 %, and by the standard error of the difference over the folds.
    Otherwise chance decides between structures that hardly differ, and the one that bends mixes more slowly.
    """
    if name == "linear" or "linear" not in runs:
        return np.zeros(2, dtype=bool)
    linear = runs["linear"].held_out
    gain = linear - runs[name].held_out
    chance = gain.std(axis=0, ddof=1) / np.sqrt(len(gain))
    return gain.mean(axis=0) <= np.maximum(MARGIN * linear.mean(axis=0), chance)


def _error(runs: dict[str, Run], name: str, straight: np.ndarray) -> float:
    """The held-out error of a structure, in which some arms are linear instead."""
    own = runs[name].held_out.mean(axis=0)
    linear = runs["linear"].held_out.mean(axis=0) if straight.any() else own
    return float(np.where(straight, linear, own).mean())


def _with_linear_arms(runs: dict[str, Run], name: str, straight: np.ndarray) -> Chain:
    """Chains of a structure, with the given arms replaced by linear ones."""
    found = jax.tree.map(np.copy, runs[name].chains)
    for arm in np.flatnonzero(straight):
        linear = runs["linear"].chains
        for part in ("outcome", "mode"):
            getattr(found, part)[:, arm] = [
                STRUCTURES[name].linear_arm(one) for one in getattr(linear, part)[:, arm]
            ]
        for part in ("noise", "variances", "site"):
            getattr(found, part)[:, arm] = getattr(linear, part)[:, arm]
        for part in ("offset", "mode_offset"):
            getattr(found, part)[:, :, arm] = getattr(linear, part)[:, :, arm]
        found.bend[:, arm] = 0.0
    return found


def _of_arms(chains: Chain, best: np.ndarray) -> Chain:
    """Combine the arms of different chains: `best` [chains, 2] gives the chain that each arm comes from."""
    found = jax.tree.map(lambda leaf: leaf[best[:, 0]].copy(), chains)
    for name in ("outcome", "mode", "bend", "noise", "variances", "site"):
        getattr(found, name)[:, 1] = getattr(chains, name)[best[:, 1], 1]
    for name in ("offset", "mode_offset"):
        getattr(found, name)[:, :, 1] = getattr(chains, name)[best[:, 1], :, 1]
    return found


def _stacked(chains: list[Chain]) -> Chain:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *chains)
