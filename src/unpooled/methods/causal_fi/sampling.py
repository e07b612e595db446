"""Rounds of CausalFI's data augmentation, and sampling until the chains have mixed."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from unpooled.maths.streams import stream_key
from unpooled.methods.causal_fi.chain import Chain, Setting, Sizes, advance
from unpooled.methods.causal_fi.columns import Layout
from unpooled.methods.causal_fi.structures import BendStructure
from unpooled.models.effects import BOOTSTRAP, average_effects
from unpooled.models.mixing import Mixing, measure, required_draws
from unpooled.models.outcome_family import ClosedFamily, Gaussian
from unpooled.optimise.procedure import Procedure, ask, side_by_side
from unpooled.protocol.batch import one_by_one
from unpooled.protocol.records import Arrays, AverageEffects, Draws, Parameters

SETTLING = 6
"""Rounds of burn-in with the chosen structure."""
CHECKED = 5
"""Number of sweeps after which the chains are measured again."""
SENT = ("confounders", "treatment", "outcome", "bend", "noise")
"""Parts of a chain's state that are sent to every site."""
JUDGED = 4
"""Number of last rounds of a trial over which its errors are averaged."""


class Run(NamedTuple):
    """The chains of one structure after some rounds, and their errors."""

    chains: Chain
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
    column: int
    """Position among u of the column that is redrawn at the coordinator; see `collapsed`."""
    people: np.ndarray
    """Number of people of each site."""
    seed: int

    def run(
        self, structure: BendStructure, chains: Chain, fold: np.ndarray, *, rounds: int, use: int
    ) -> Procedure[Run]:
        """Rounds of data augmentation; `use` selects a random stream."""
        held, misfit = [], []
        for number in range(rounds):
            chains, sums, _ = yield from self.sweep(structure, chains, fold, number=number, use=use)
            held.append(sums["held_out"] / np.maximum(sums["held"], 1.0))
            misfit.append(sums["misfit"] / np.maximum(sums["used"], 1.0))
        return Run(chains, np.mean(held[-JUDGED:], axis=0), np.mean(misfit[-JUDGED:], axis=0))

    def sweep(
        self, structure: BendStructure, chains: Chain, fold: np.ndarray, *, number: int, use: int,
        draws: Draws | None = None,
    ) -> Procedure[tuple[Chain, Arrays, AverageEffects | None]]:  # fmt: skip
        """One round: the next state, the sites' sums and, in the same round, average effects of `draws`."""
        groups = jnp.asarray(structure.groups(self.sizes.all))
        setting = Setting(self.layout, self.family, groups, self.sizes.sites > 1, jnp.asarray(self.column))
        keys = self._keys(use, number, 2 * len(fold))
        asked = ask(f"augmentation/{structure.name}", self._question(chains, fold, keys[: len(fold)]))
        if draws is None:
            reply, effects = (yield from asked), None
        else:
            fixed = {**draws.shared, BOOTSTRAP: draws.shared["key"]}
            average = ask(f"effect/{structure.name}", Parameters(fixed=fixed, per_site=draws.by_site))
            reply, found = yield from side_by_side(asked, average)
            effects = average_effects(found, np.asarray)
        sums = {**reply.summed, **reply.per_site}
        following = one_by_one(advance, (chains, sums, keys[len(fold) :]), setting)
        return jax.tree.map(np.asarray, following), sums, effects

    def _question(self, chains: Chain, fold: np.ndarray, keys: np.ndarray) -> Parameters:
        draw = {name: getattr(chains, name) for name in SENT}
        offsets = {"offset": chains.offset, "mode_offset": chains.mode_offset}
        # From sums alone only numbers can be redrawn, given an outcome that is a number too.
        normal = isinstance(self.family, Gaussian) and len(self.layout.numbers) and self.shift is None
        column = {"column": np.full(len(fold), self.column)} if normal else {}
        return Parameters(
            fixed={"draw": draw, "mode": chains.mode, "fold": fold, "key": keys, **column},
            per_site={**offsets, **self._shifts(len(fold))},
        )

    def draws(self, chains: Chain, use: int, number: int) -> Draws:
        """The states of all chains as draws: shared parameters, and each site's offsets."""
        count = len(chains.noise)
        keys = self._keys(use + 1, number, count)
        return Draws(
            {**{name: getattr(chains, name) for name in SENT}, "key": keys},
            {"offset": chains.offset, **self._shifts(count)},
        )

    def _shifts(self, count: int) -> Arrays:
        """The shifts repeated for a batch of questions or draws; empty if there are none."""
        return {} if self.shift is None else {"shift": np.repeat(self.shift[None], count, axis=0)}

    def _keys(self, use: int, number: int, count: int) -> np.ndarray:
        key = jax.random.fold_in(stream_key(self.seed, "augmentation keys", use), number)
        return np.asarray(jax.random.key_data(jax.random.split(key, count)))


class Length(NamedTuple):
    """How long to sample: the number of draws, and the fewest and most sweeps after burn-in."""

    draws: int
    sweeps: int
    most_sweeps: int

    @property
    def chains(self) -> int:
        """Number of parallel chains: the fewest sweeps give half as many draws again as are returned."""
        return -(-3 * self.draws // (2 * self.sweeps))

    @property
    def most(self) -> int:
        """Most rounds of sampling; effects of a state are known one round later."""
        return SETTLING + max(self.sweeps, self.most_sweeps) + 1

    def kept(self, sweeps: int) -> int:
        """Number of sweeps that are kept: the last three quarters, burn-in included.

        >>> length = Length(draws=160, sweeps=20, most_sweeps=100)
        >>> length.chains, length.most, length.kept(20), length.kept(60)
        (12, 107, 20, 50)
        """
        return max(self.sweeps, min(sweeps, -(-3 * (sweeps + SETTLING) // 4)))


class Sample(NamedTuple):
    """Draws, the sites' average effects under each [K, site], and how well the chains have mixed."""

    draws: Draws
    effects: AverageEffects
    mixing: Mixing


def sample(
    sampler: AugmentationSampler, structure: BendStructure, chains: Chain, length: Length, use: int
) -> Procedure[Sample]:
    """Sample until the chains have mixed, and select draws evenly over the sweeps and chains that are kept.

    Average effects of a state are asked for in the round that draws the next one, so they cost no round.
    """
    everybody = np.full(length.chains, -1)
    found, states, effects = list[Draws](), list[Chain](), list[AverageEffects]()
    mixing = None
    for number in range(length.most):
        draws = sampler.draws(chains, use, number) if number > SETTLING else None
        following, _, effect = yield from sampler.sweep(
            structure, chains, everybody, number=number, use=use, draws=draws
        )
        if draws is not None and effect is not None:
            found.append(draws)
            states.append(chains)
            effects.append(effect)
        chains, sweeps = following, len(states)
        last = number + 1 == length.most
        if last or (sweeps >= length.sweeps and (sweeps - length.sweeps) % CHECKED == 0):
            kept = slice(sweeps - length.kept(sweeps), None)
            mixing = measure(
                monitored(states[kept], structure, sampler.sizes),
                np.stack([one.sample for one in effects[kept]]) @ (sampler.people / sampler.people.sum()),
                required_draws(length.draws),
                unjudged=("treatment's coefficients",),
            )
            if mixing.mixed:
                break
    assert mixing is not None
    kept = slice(len(states) - mixing.sweeps, None)
    every: Draws = jax.tree.map(lambda *leaves: np.concatenate(leaves), *found[kept])
    selected = np.linspace(0, len(every.shared["noise"]) - 1, length.draws).round().astype(int)
    average = AverageEffects(
        *(
            np.concatenate([getattr(one, name) for one in effects[kept]])[selected]
            for name in ("sample", "population")
        )
    )
    return Sample(jax.tree.map(lambda leaf: leaf[selected], every), average, mixing)


def monitored(states: list[Chain], structure: BendStructure, sizes: Sizes) -> dict[str, np.ndarray]:
    """The identified parameters by group, [sweep, chain, …].

    The coefficients of an arm that bends are left out: a direction and a curve, or a knee and a slope, can
    trade places with hardly a change of the outcome. Prior variances are left out as well. The treatment's
    coefficients mix slowest, as latents of a probit do; they are measured, but not judged, since no effect is
    computed from them. What they do to imputed values shows in all other groups.
    """
    every: Any = jax.tree.map(lambda *leaves: np.stack(leaves), *states)
    straight = (every.bend == 0.0) | (structure.name == "linear")
    outcome = np.where(straight[..., None], every.outcome[..., : sizes.all], 0.0)
    covariance = every.confounders["covariance"]
    return {
        "outcome's coefficients": _flat(outcome),
        "outcome's noise": every.noise,
        "site offsets": _flat(every.offset),
        "treatment's coefficients": every.treatment,
        "confounders' coefficients": np.concatenate(
            [_flat(every.confounders[name]) for name in ("intercept", "slopes", "steps")], axis=2
        ),
        "confounders' variances": np.diagonal(covariance, axis1=2, axis2=3),
    }


def _flat(values: np.ndarray) -> np.ndarray:
    return values.reshape(*values.shape[:2], -1)
