"""The folds of cross-fitting and of held-out errors, drawn at the site from a secret of its own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.maths.streams import stream
from unpooled.protocol.messages import Adopt


class Folds(NamedTuple):
    """Everybody's fold in each draw of the method's folds [draw, n], and in the diagnostics."""

    drawn: np.ndarray
    diagnostic: np.ndarray | None

    def of(self, people: slice | np.ndarray) -> Folds:
        return Folds(self.drawn[:, people], None if self.diagnostic is None else self.diagnostic[people])

    def as_one(self) -> Folds:
        """One fold with all people."""
        return Folds(np.zeros_like(self.drawn[:1]), None)

    def groups(self, treatment: np.ndarray) -> np.ndarray:
        """Every fold of every arm [group, n]: groups whose sums could be worked out."""
        each = [*self.drawn, *([] if self.diagnostic is None else [self.diagnostic])]
        return np.array(
            [
                (one == f) & (treatment == a)
                for one in each
                for a in (0, 1)
                for f in range(one.max(initial=0) + 1)
            ]
        )


def folds_of(
    treatment: np.ndarray,
    count: int,
    draws: int,
    question: Adopt,
    salt: int,
    cluster: np.ndarray | None = None,
) -> Folds:
    """The folds of a study, drawn by person or, so that nobody is held out whose cluster is not, by cluster.

    A cluster counts for the arm of most of its people.
    """
    units = treatment
    if cluster is not None:
        units = (np.bincount(cluster, treatment) > 0.5 * np.bincount(cluster)).astype(float)
    fold = folds(units, count, stream(question.seed, "folds", salt))
    drawn = further_folds(units, fold, count, draws, stream(question.seed, "further folds", salt))
    diagnostic = None
    if question.diagnostics:
        diagnostic = folds(units, question.diagnostics, stream(question.seed, "diagnostic folds", salt))
    found = Folds(drawn, diagnostic)
    return found if cluster is None else found.of(cluster)


def folds(treatment: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Assign each row to a fold, spreading each arm evenly over the folds; reproducible from the seed.

    A method that holds out no rows (`count` 0) has one fold with all rows.
    """
    fold = np.zeros(len(treatment), dtype=np.int8)
    for arm in (0, 1):
        people = np.flatnonzero(treatment == arm)
        fold[people] = rng.permutation(len(people)) % max(count, 1)
    return fold


def further_folds(
    treatment: np.ndarray, fold: np.ndarray, count: int, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """All draws of the folds [draw, n], beginning with `fold`.

    Each further draw spreads the people who share an arm and all folds of the draws before evenly over the
    folds. No two draws have nearly the same fold, whose difference would be a sum over few people.
    """
    drawn = [np.asarray(fold, dtype=np.int8)]
    alike = np.asarray(fold, dtype=np.intp)
    """A number for all folds of the draws so far."""
    while len(drawn) < draws and count > 1:
        new = np.zeros(len(treatment), dtype=np.int8)
        for arm in (0, 1):
            people = np.flatnonzero(treatment == arm)
            # The numbers that occur, in order, become 0, 1, 2, …
            same = (np.cumsum(np.bincount(alike[people]) > 0) - 1)[alike[people]]
            # People in random order, those who are alike side by side, are dealt out to the folds in blocks.
            order = np.lexsort((rng.random(len(people)), rng.permutation(same.max(initial=-1) + 1)[same]))
            blocks = np.tile(np.arange(count, dtype=np.int8), (-(-len(people) // count), 1))
            new[people[order]] = rng.permuted(blocks, axis=1).ravel()[: len(people)]
        drawn.append(new)
        alike = alike * count + new
    return np.array(drawn)
