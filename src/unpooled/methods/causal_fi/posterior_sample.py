"""Draws of CausalFI's posterior: chains until they have mixed, or importance sampling where they are slow."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from unpooled.methods.causal_fi import importance
from unpooled.methods.causal_fi.chain import Chain, Sizes
from unpooled.methods.causal_fi.sampler import AugmentationSampler
from unpooled.methods.causal_fi.structures import BendStructure
from unpooled.models.chain_checks import Mixing, measure, required_draws
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.records import AverageOutcomes, Draws

SETTLING = 6
"""Rounds of burn-in with the chosen structure."""
CHECKED = 5
"""Number of sweeps after which the chains are measured again."""


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
    effects: AverageOutcomes
    mixing: Mixing
    importance: dict[str, float]
    """What importance sampling took: rounds, points, and effective points; empty if it was not tried."""


class Record(NamedTuple):
    """States of all chains by sweep, as draws, with their average effects."""

    states: list[Chain]
    draws: list[Draws]
    effects: list[AverageOutcomes]

    def last(self, sweeps: int) -> Record:
        """The last sweeps only."""
        first = len(self.states) - sweeps
        return Record(self.states[first:], self.draws[first:], self.effects[first:])

    def measured(self, sampler: AugmentationSampler, structure: BendStructure, required: float) -> Mixing:
        return measure(
            monitored(self.states, structure, sampler.sizes),
            np.stack([one.average_effects("sample")[:, 0] for one in self.effects]),
            required,
        )

    def sample(self, count: int, mixing: Mixing, taken: dict[str, float]) -> Sample:
        """Draws spread evenly over sweeps and chains."""
        every: Draws = jax.tree.map(lambda *leaves: np.concatenate(leaves), *self.draws)
        selected = np.linspace(0, len(every.shared["noise"]) - 1, count).round().astype(int)
        average = AverageOutcomes.joined(self.effects).selected(selected)
        return Sample(jax.tree.map(lambda leaf: leaf[selected], every), average, mixing, taken)


def sample(
    sampler: AugmentationSampler, structure: BendStructure, chains: Chain, length: Length, use: int
) -> Procedure[Sample]:
    """Sample until the chains have mixed, and select draws evenly over the sweeps and chains that are kept.

    Average effects of a state are asked for in the round that draws the next one, so they cost no round. If
    the chains have not mixed at the first look, importance sampling is tried once where it is possible. If
    neither passes, the draws with the smaller R̂ are returned.
    """
    everybody, required = np.full(length.chains, -1), required_draws(length.draws)
    record, taken, mixing, others = Record([], [], []), dict[str, float](), None, None
    for number in range(length.most):
        draws = sampler.draws(chains, use, number) if number > SETTLING else None
        following, _, effect = yield from sampler.sweep(
            structure, chains, everybody, number=number, use=use, draws=draws
        )
        if draws is not None and effect is not None:
            record.states.append(chains)
            record.draws.append(draws)
            record.effects.append(effect)
        chains, sweeps = following, len(record.states)
        last = number + 1 == length.most
        if not last and (sweeps < length.sweeps or (sweeps - length.sweeps) % CHECKED):
            continue
        kept = record.last(length.kept(sweeps))
        mixing = kept.measured(sampler, structure, required)
        if mixing.mixed or last:
            break
        if sweeps == length.sweeps and importance.possible(sampler, structure):
            found = yield from importance.sample(sampler, structure, kept.states, use=use + 2)
            taken = found.taken
            if found.states:
                weighted = Record(found.states, found.draws, found.effects)
                judged = weighted.measured(sampler, structure, required)
                others = weighted.sample(length.draws, judged, taken)
                if judged.mixed:
                    return others
    assert mixing is not None
    own = record.last(mixing.sweeps).sample(length.draws, mixing, taken)
    return own if mixing.mixed or others is None else min(own, others, key=lambda one: one.mixing.excess)


def monitored(states: list[Chain], structure: BendStructure, sizes: Sizes) -> dict[str, np.ndarray]:
    """The identified parameters by group, [sweep, chain, …].

    The coefficients of an arm that bends are left out: a direction and a curve, or a knee and a slope, can
    trade places with hardly a change of the outcome. Prior variances are left out as well.
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
