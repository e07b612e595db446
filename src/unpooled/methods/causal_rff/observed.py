"""The candidate without latent confounders: one round of sums, then everything at the coordinator."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from unpooled.algorithms.exchange import Procedure, ask
from unpooled.methods.causal_rff import regression
from unpooled.methods.causal_rff.candidate import Found
from unpooled.methods.causal_rff.design import Design
from unpooled.methods.causal_rff.regression import Mode, Outline, Sums
from unpooled.protocol.messages import Tree

FOLD_DRAWS = 50
"""Draws of the regression by which a fold's outcomes are judged."""


class Observed(NamedTuple):
    """See `unpooled.methods.causal_rff.candidate.Candidate`."""

    design: Design
    outline: Outline
    draws: int
    seed: int

    def learn(self, folds: int) -> Procedure[Regressed]:
        lengths = self.design.lengths
        grid = [(length, fold) for length in lengths for fold in range(-1, folds)]
        fixed = {"length": np.array([at[0] for at in grid]), "fold": np.array([at[1] for at in grid])}
        reply = yield from ask("regression", {"free": {}, "fixed": fixed})
        parts: dict[str, Any] = {**reply["total"], **reply["each"]}
        every = [Sums(**{name: parts[name][index] for name in Sums._fields}) for index in range(len(grid))]
        full = [every[index] for index, (_, fold) in enumerate(grid) if fold < 0]
        modes = [regression.find_mode(self.outline, sums) for sums in full]
        best = int(np.argmax([mode.evidence for mode in modes]))
        without = [
            every[index] for index, (length, fold) in enumerate(grid) if fold >= 0 and length == lengths[best]
        ]
        return Regressed(full, modes, best, without)

    def sample(self, learned: Regressed, folds: int) -> Procedure[Found]:
        """No further round: the coefficients' posterior is exact given the variances."""
        yield from ()
        diagnostics = {
            "length_scale": float(self.design.lengths[learned.best]),
            "evidence": [mode.evidence for mode in learned.modes],
        }
        return Found(self._drawn(learned), self._without(learned), diagnostics)

    def _drawn(self, learned: Regressed) -> Tree:
        """Each length-scale gives draws in proportion to its evidence."""
        evidence = np.array([mode.evidence for mode in learned.modes])
        weight = np.exp(evidence - evidence.max())
        shares = np.floor(weight / weight.sum() * self.draws).astype(int)
        shares[learned.best] += self.draws - shares.sum()
        rng = np.random.default_rng([self.seed, 3])
        parts = [
            _at(length, regression.draw(self.outline, sums, mode, int(share), rng))
            for length, sums, mode, share in zip(
                self.design.lengths, learned.sums, learned.modes, shares, strict=True
            )
            if share
        ]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def _without(self, learned: Regressed) -> Tree | None:
        """Draws from the fits without each fold, at the best length-scale."""
        if not learned.without:
            return None
        rng = np.random.default_rng([self.seed, 6])
        start = learned.modes[learned.best].log_variances
        drawn = []
        for sums in learned.without:
            mode = regression.find_mode(self.outline, sums, start, curvature=False)
            few = regression.draw(self.outline, sums, mode, FOLD_DRAWS, rng)
            drawn.append(_at(self.design.lengths[learned.best], few))
        return jax.tree.map(lambda *leaves: np.stack(leaves), *drawn)


class Regressed(NamedTuple):
    """Of every length-scale: the sums and the mode; and the sums without each fold at the best one."""

    sums: list[Sums]
    modes: list[Mode]
    best: int
    without: list[Sums]


def _at(length: float, drawn: dict[str, np.ndarray]) -> Tree:
    return {**drawn, "length": np.full(len(drawn["noise"]), length)}
