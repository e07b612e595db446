"""Rounds of CausalFI: data augmentation, average effects, and log likelihoods of what is observed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.maths.streams import key_data, stream
from unpooled.methods.causal_fi.chain import Chain, Setting, Sizes, advance
from unpooled.methods.causal_fi.columns import Layout
from unpooled.methods.causal_fi.structures import BendStructure
from unpooled.models.effects import BOOTSTRAP, average_outcomes
from unpooled.models.outcome_family import ClosedFamily, Gaussian
from unpooled.optimise.procedure import Procedure, ask, side_by_side
from unpooled.protocol.records import Arrays, AverageOutcomes, Draws, Parameters

SENT = ("confounders", "treatment", "outcome", "bend", "noise")
"""Parts of a chain's state that are sent to every site."""
LIKELIHOOD = "likelihood/linear"
"""Name of the stage of log likelihoods."""
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
    weighted: bool
    """Whether importance sampling may be tried."""
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
    ) -> Procedure[tuple[Chain, Arrays, AverageOutcomes | None]]:  # fmt: skip
        """One round: the next state, the sites' sums and, in the same round, average effects of `draws`."""
        groups = structure.groups(self.sizes.all)
        setting = Setting(self.layout, self.family, groups, self.sizes.sites > 1, self.column)
        rng = stream(self.seed, "sweeps", use, number)
        keys = key_data(rng, len(fold))
        asked = ask(f"augmentation/{structure.name}", self._question(chains, fold, keys))
        if draws is None:
            reply, effects = (yield from asked), None
        else:
            reply, effects = yield from side_by_side(asked, self.effects(structure, draws))
        sums = {**reply.summed, **reply.per_site}
        return advance(chains, sums, setting, rng), sums, effects

    def effects(self, structure: BendStructure, draws: Draws) -> Procedure[AverageOutcomes]:
        """The sites' mean outcomes under each draw."""
        fixed = {**draws.shared, BOOTSTRAP: draws.shared["key"]}
        question = Parameters(fixed=fixed, per_site=draws.by_site)
        return average_outcomes((yield from ask(f"effect/{structure.name}", question)).per_site)

    @property
    def has_likelihood(self) -> bool:
        """Whether the likelihood of what is observed may be asked for if both arms are linear."""
        return self.weighted and self.shift is None

    def log_likelihood(self, chains: Chain) -> Procedure[np.ndarray]:
        """The log likelihood of what is observed at all sites, under each of several states."""
        names = ("confounders", "treatment", "outcome", "noise")
        fixed = {name: getattr(chains, name) for name in names}
        reply = yield from ask(LIKELIHOOD, Parameters(fixed=fixed, per_site={"offset": chains.offset}))
        return np.asarray(reply.summed["log_likelihood"], dtype=float)

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
        keys = key_data(stream(self.seed, "sweeps", use + 1, number), count)
        return Draws(
            {**{name: getattr(chains, name) for name in SENT}, "key": keys},
            {"offset": chains.offset, **self._shifts(count)},
        )

    def _shifts(self, count: int) -> Arrays:
        """The shifts repeated for a batch of questions or draws; empty if there are none."""
        return {} if self.shift is None else {"shift": np.repeat(self.shift[None], count, axis=0)}
