"""Variational EM over the sites, with all starts and all numbers of classes in one batch."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from unpooled.maths.streams import stream
from unpooled.methods.causal_rff.classes.log_likelihoods import ClassLogLikelihoods, as_draws
from unpooled.methods.causal_rff.classes.mixture import (
    Mixture,
    MixtureState,
    begin,
    counts_of,
    first_log_likelihoods,
    maximise,
)
from unpooled.optimise.procedure import Procedure, ask, noted
from unpooled.protocol.batch import one_by_one
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Parameters

ANNEALED = 8
"""Rounds of annealing, in which class probabilities are tempered so that most starts find the same mode."""
COLDEST = 0.4
"""Exponent of the class probabilities in the first round of annealing; it increases to 1."""
PRUNED = 12
"""After this many rounds only the best start for each number of classes is continued."""
SETTLED = 0.01
"""A model has converged when its bound gains less than this in a round."""


class Learned(NamedTuple):
    """A batch of models, one per combination of number of classes and start."""

    states: MixtureState
    likelihoods: ClassLogLikelihoods
    bounds: np.ndarray
    people: np.ndarray
    """Expected numbers of people by site, arm and class that the states were computed from."""
    history: tuple[float, ...]

    def taking(self, index: list[int]) -> Learned:
        """The models with these indices."""
        states, likelihoods, bounds, people = jax.tree.map(lambda leaf: np.asarray(leaf)[index], self[:-1])
        return Learned(states, likelihoods, bounds, people, self.history)


def starts(mixture: Mixture, classes: list[int], sites: int, rates: np.ndarray, seed: int) -> Learned:
    """One model per entry of `classes`, each with its own random centres."""
    states = [begin(mixture, k, sites) for k in classes]
    likelihoods = [
        first_log_likelihoods(mixture, state, sites, rates, stream(seed, "class starts", index))
        for index, state in enumerate(states)
    ]
    both = jax.tree.map(
        lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]),
        *zip(states, likelihoods, strict=True),
    )
    nobody = np.zeros((len(classes), sites, 2, mixture.most))
    return Learned(both[0], both[1], np.full(len(classes), -np.inf), nobody, ())


def learn(
    mixture: Mixture, learned: Learned, *, rounds: int, fold: np.ndarray, annealed: bool
) -> Procedure[Learned]:
    """Rounds of EM until every model has converged. With annealing, worse starts are dropped on the way."""
    for number in range(rounds):
        temper = min(1.0, COLDEST + (1.0 - COLDEST) * number / ANNEALED) if annealed else 1.0
        reply = yield from noted(_expect(learned, fold, temper), -float(learned.bounds.max()))
        counts = counts_of(reply, mixture.most)
        states, likelihoods, bounds = one_by_one(maximise, (learned.states, counts), mixture)
        before, now = learned.bounds, np.asarray(bounds)
        history = (*learned.history, float(now.max()))
        learned = Learned(states, likelihoods, now, np.asarray(counts.people), history)
        if annealed and number + 1 == PRUNED:
            best = _best_starts(learned)
            learned, fold, before = learned.taking(best), fold[best], before[best]
        if temper == 1.0 and np.all(learned.bounds - before < SETTLED):
            break
    return learned


def best(learned: Learned) -> Learned:
    """The model with the highest bound."""
    return learned.taking([int(np.argmax(learned.bounds))])


def _best_starts(learned: Learned) -> list[int]:
    classes = np.asarray(learned.states.active).sum(axis=1)
    return [
        int(np.flatnonzero(classes == k)[np.argmax(learned.bounds[classes == k])]) for k in np.unique(classes)
    ]


def _expect(learned: Learned, fold: np.ndarray, temper: float) -> Procedure[Statistics]:
    sent = as_draws(learned.likelihoods, most_classes(learned))
    fixed = {"views": sent.shared, "fold": fold, "temper": np.full(len(fold), temper)}
    return (yield from ask("classes", Parameters(fixed=fixed, per_site=sent.by_site)))


def most_classes(learned: Learned) -> int:
    """The largest number of classes among the models."""
    return int(np.asarray(learned.states.active).sum(axis=1).max())
