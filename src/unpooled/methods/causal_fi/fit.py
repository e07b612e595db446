"""CausalFI's data augmentation as a procedure: a linear start, trials of the structures, then sampling.

All chains start with linear outcomes. Each structure is then tried without every fold, and the one with the
smallest held-out error is sampled on all people.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from unpooled.maths.streams import stream, stream_key
from unpooled.methods.causal_fi.chain import Chain, Setting, Sizes, advance, begin
from unpooled.methods.causal_fi.columns import Layout
from unpooled.methods.causal_fi.structures import STRUCTURES, BendStructure
from unpooled.methods.method import Fit
from unpooled.models.outcome_family import ClosedFamily
from unpooled.optimise.procedure import Procedure, ask, side_by_side
from unpooled.protocol.batch import one_by_one
from unpooled.protocol.records import Arrays, Draws, Parameters

STARTED, TRIED, SETTLING = 6, 10, 6
"""Rounds of the linear start, of the trials, and of burn-in with the chosen structure."""
SENT = ("confounders", "treatment", "outcome", "bend", "noise")
"""Parts of a chain's state that are sent to every site."""
JUDGED = 4
"""Number of last rounds of a trial over which its errors are averaged."""


class Run(NamedTuple):
    """The chains of one structure after some rounds, the states that were kept, and their errors."""

    chains: Chain
    kept: list[Chain]
    held_out: np.ndarray
    """Squared error on held-out people, by chain and arm."""
    misfit: np.ndarray
    """Squared error on the people in use, by chain and arm."""


class AugmentationSampler(NamedTuple):
    """Everything that is common to all chains."""

    sizes: Sizes
    layout: Layout
    family: ClosedFamily
    shift: np.ndarray | None
    """Shifts of missing values [site, arm, feature]; None if values are missing at random."""
    seed: int

    def run(
        self, structure: BendStructure, chains: Chain, fold: np.ndarray, *, rounds: int, kept: int, use: int
    ) -> Procedure[Run]:
        """Rounds of data augmentation; the last `kept` states are kept. `use` selects a random stream."""
        groups = jnp.asarray(structure.groups(self.sizes.all))
        setting = Setting(self.layout, self.family, groups, self.sizes.sites > 1)
        found, held, misfit = [], [], []
        for number in range(rounds):
            keys = self._keys(use, number, 2 * len(fold))
            question = self._question(chains, fold, keys[: len(fold)])
            reply = yield from ask(f"augmentation/{structure.name}", question)
            sums = {**reply.summed, **reply.per_site}
            chains = jax.tree.map(np.asarray, one_by_one(advance, (chains, sums, keys[len(fold) :]), setting))
            held.append(sums["held_out"] / np.maximum(sums["held"], 1.0))
            misfit.append(sums["misfit"] / np.maximum(sums["used"], 1.0))
            if number >= rounds - kept:
                found.append(chains)
        return Run(chains, found, np.mean(held[-JUDGED:], axis=0), np.mean(misfit[-JUDGED:], axis=0))

    def _question(self, chains: Chain, fold: np.ndarray, keys: np.ndarray) -> Parameters:
        draw = {name: getattr(chains, name) for name in SENT}
        offsets = {"offset": chains.offset, "mode_offset": chains.mode_offset}
        return Parameters(
            fixed={"draw": draw, "mode": chains.mode, "fold": fold, "key": keys},
            per_site={**offsets, **self.shifts(len(fold))},
        )

    def shifts(self, count: int) -> Arrays:
        """The shifts repeated for a batch of questions or draws; empty if there are none."""
        return {} if self.shift is None else {"shift": np.repeat(self.shift[None], count, axis=0)}

    def _keys(self, use: int, number: int, count: int) -> np.ndarray:
        key = jax.random.fold_in(stream_key(self.seed, "augmentation keys", use), number)
        return np.asarray(jax.random.key_data(jax.random.split(key, count)))


def fit(
    sampler: AugmentationSampler, names: tuple[str, ...], *, folds: int, sweeps: int, draws: int
) -> Procedure[Fit]:
    """Choose a structure by held-out error and sample it; with a single structure, `folds` is 0."""
    chains = -(-draws // sweeps)
    initial = _stacked([begin(sampler.sizes, sampler.layout, sampler.family)] * chains)
    everybody = np.full(chains, -1)
    linear = STRUCTURES["linear"]
    started = yield from sampler.run(linear, initial, everybody, rounds=STARTED, kept=0, use=0)
    tried = yield from side_by_side(
        *[
            _trial(sampler, STRUCTURES[name], started.chains, folds, use=index + 1)
            for index, name in enumerate(names)
        ]
    )
    runs = dict(zip(names, tried, strict=True))
    by_arm = {name: one.held_out.mean(axis=0) for name, one in runs.items()}
    error = {name: float(_smaller_error(by_arm, name).mean()) for name in names}
    chosen = min(names, key=lambda name: error[name])
    best = _with_linear_arms(runs, chosen, _smaller_error(by_arm, chosen) < by_arm[chosen])
    first = jax.tree.map(lambda leaf: leaf[np.arange(chains) % len(leaf)], best)
    run = yield from sampler.run(
        STRUCTURES[chosen], first, everybody, rounds=SETTLING + sweeps, kept=sweeps, use=len(names) + 1
    )
    found = _draws(run.kept, sampler, draws)
    reply = yield from ask(f"effect/{chosen}", Parameters(fixed=found.shared, per_site=found.by_site))
    diagnostics = {
        "structure": chosen,
        "held_out_error": error if folds else {},
        "noise": float(np.sqrt(found.shared["noise"].mean())),
        "bend": {"control": float(run.chains.bend[0, 0]), "treated": float(run.chains.bend[0, 1])},
    }
    return Fit(replace(found, model=chosen), np.asarray(reply.per_site["effect"]), diagnostics)


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
    run = yield from sampler.run(structure, _stacked(chains), fold, rounds=TRIED, kept=0, use=use)
    first = len(structure.starts) * np.arange(len(held))[:, None]
    best = first + np.argmin(run.misfit.reshape(len(held), -1, 2), axis=1)
    chosen = [np.take_along_axis(part, best, axis=0) for part in (run.held_out, run.misfit)]
    return Run(_of_arms(run.chains, best), [], *chosen)


def _smaller_error(by_arm: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Error of each arm: that of the structure or of a linear arm, whichever is smaller."""
    return np.minimum(by_arm[name], by_arm.get("linear", np.inf))


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


def _draws(kept: list[Chain], sampler: AugmentationSampler, count: int) -> Draws:
    """Select `count` draws evenly over rounds and chains: shared parameters, and each site's offsets."""
    total = sum(len(one.noise) for one in kept)
    selected = np.linspace(0, total - 1, count).round().astype(int)
    every: Chain = jax.tree.map(lambda *leaves: np.concatenate(leaves)[selected], *kept)
    keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(sampler.seed), count)))
    return Draws(
        {**{name: getattr(every, name) for name in SENT}, "key": keys},
        {"offset": every.offset, **sampler.shifts(count)},
    )
