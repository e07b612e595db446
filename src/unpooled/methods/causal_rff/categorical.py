"""The candidate with latent classes: variational EM finds the mode, Gibbs rounds draw about it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from unpooled.algorithms.exchange import Procedure, side_by_side
from unpooled.methods.causal_rff import gibbs, learning
from unpooled.methods.causal_rff.candidate import Found
from unpooled.methods.causal_rff.learning import Learned, asked
from unpooled.methods.causal_rff.mixture import Mixture

CLASSES = tuple(range(2, 9))
"""Numbers of classes that the bound chooses from."""
FOLD_ROUNDS = 12
"""Rounds of EM without a fold: it begins at the mode of everybody, which is near."""


class Categorical(NamedTuple):
    """See `unpooled.methods.causal_rff.candidate.Candidate`."""

    mixture: Mixture
    rates: np.ndarray
    """How common each 0/1 covariate is: about these the starts are drawn."""
    sites: int
    classes: tuple[int, ...]
    starts: int
    rounds: int
    sweeps: int
    draws: int
    seed: int

    def learn(self, folds: int) -> Procedure[Learned]:
        models = [k for k in self.classes for _ in range(self.starts)]
        begun = learning.starts(self.mixture, models, self.sites, self.rates, [self.seed, 4])
        everybody = np.full(len(models), -1)
        return learning.learn(self.mixture, begun, rounds=self.rounds, fold=everybody, annealed=True)

    def sample(self, learned: Learned, folds: int) -> Procedure[Found]:
        mode = learning.best(learned)
        chains = -(-self.draws // gibbs.kept(self.sweeps))
        steps: list[Procedure[Any]] = [
            gibbs.sample(self.mixture, mode, chains=chains, sweeps=self.sweeps, seed=self.seed)
        ]
        if folds:
            steps.append(self._without(mode, folds))
        drawn, *rest = yield from side_by_side(*steps)
        few = np.linspace(0, len(drawn.level) - 1, self.draws).round().astype(int)
        without = {name: value[:, None] for name, value in asked(rest[0].views).items()} if rest else None
        return Found(jax.tree.map(lambda leaf: leaf[few], asked(drawn)), without, _told(learned))

    def _without(self, mode: Learned, folds: int) -> Procedure[Learned]:
        many, fold = mode.taking([0] * folds), np.arange(folds)
        return learning.learn(self.mixture, many, rounds=FOLD_ROUNDS, fold=fold, annealed=False)


def _told(learned: Learned) -> dict[str, Any]:
    classes = np.asarray(learned.states.active).sum(axis=1).astype(int).tolist()
    return {
        "classes": classes[int(np.argmax(learned.bounds))],
        "bounds": dict(zip(map(str, classes), learned.bounds.tolist(), strict=True)),
        "history": list(learned.history),
    }
