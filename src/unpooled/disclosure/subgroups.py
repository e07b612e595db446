"""For which subgroups a site answers: those whose sums cannot be combined into sums over few people.

A sum over one group minus a sum over another is a sum over the people in whom they differ. All that follows
from the sums over groups are combinations of their indicators. A set of groups is safe if no combination
except zero is carried by fewer than `cell` people, in any part of the table whose sums can be told apart,
such as an arm.
"""

from __future__ import annotations

import numpy as np

MOST_CHOICES = 20_000
"""With more choices of small sets of people than this, a combination that needs only them is unsafe."""


def answerable(members: np.ndarray, parts: np.ndarray, cell: int) -> np.ndarray:
    """Which groups [group] are safe together, each with those before it that are.

    `members` [group, n] says who belongs to each group, `parts` [part, n] who to each part of the table.

    >>> old = np.arange(20) < 10
    >>> almost = np.arange(20) < 9
    >>> answerable(np.array([old, almost]), np.ones((1, 20), bool), 5).tolist()
    [True, False]
    """
    groups, people = len(members), members.shape[1]
    if not cell or not groups or not people:
        return np.ones(groups, dtype=bool)
    bytes_of = np.packbits(members, axis=0)
    _, first, whose = np.unique(bytes_of, axis=1, return_index=True, return_inverse=True)
    patterns, whose = members[:, first], np.ravel(whose)  # people who belong to the same groups
    counts = np.array([np.bincount(whose[part], minlength=len(first)) for part in parts.astype(bool)])
    kept = np.zeros(groups, dtype=bool)
    for place in range(groups):
        kept[place] = True
        kept[place] = not any(_rests_on_few(patterns[kept], count, cell) for count in counts)
    return kept


def _rests_on_few(patterns: np.ndarray, counts: np.ndarray, cell: int) -> bool:
    """Whether a combination of these groups and everybody is carried by fewer than `cell` people."""
    found, whose = np.unique(patterns[:, counts > 0], axis=1, return_inverse=True)
    people = np.bincount(np.ravel(whose), weights=counts[counts > 0])
    span = np.vstack([np.ones(found.shape[1]), found])
    small = people < cell
    if not small.any():
        return False
    # Combinations that vanish in all large sets of people, and what they are in the small ones.
    left, sizes, _ = np.linalg.svd(span[:, ~small])
    vanishing = left[:, np.sum(sizes > 1e-9) :].T @ span[:, small]
    rank = _rank(vanishing)
    if rank == 0:
        return False
    chosen = _choices(people[small], cell)
    if chosen is None:
        return True
    # A combination that vanishes elsewhere lowers the rank of what is left.
    return bool(np.any(_rank(np.where(chosen[:, None], 0.0, vanishing)) < rank))


def _choices(people: np.ndarray, cell: int) -> np.ndarray | None:
    """Every choice [choice, set] of sets with fewer than `cell` people together; None if too many."""
    grown = [np.zeros((1, len(people)), dtype=bool)]
    for place in range(len(people)):
        every = np.concatenate(grown)
        with_it = every | (np.arange(len(people)) == place)
        grown = [every, with_it[with_it @ people < cell]]
        if sum(map(len, grown)) > MOST_CHOICES:
            return None
    return np.concatenate(grown)


def _rank(matrices: np.ndarray) -> np.ndarray:
    return np.linalg.matrix_rank(matrices, tol=1e-9)
