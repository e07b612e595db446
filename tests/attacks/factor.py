"""Solve the pair counts of 0/1 columns for the people behind them, by integer programming.

The Gram matrix of 0/1 columns counts, for every two of them, how many people have both. A table of people is
a number of people for each pattern of zeros and ones, so that every count is an equation in whole numbers.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp


def certain_people(counts: np.ndarray, seconds: float = 2.0) -> dict[tuple[int, ...], int]:
    """By pattern: the fewest people in any table with these counts, where that is more than none.

    `counts` [1 + f, 1 + f] has the number of people first, and next the 0/1 columns. Solutions for random
    costs show which patterns vary; the fewest people of the others are then minimised one by one. Where the
    solver does not finish in time, nobody is certain.

    >>> both = np.array([[1, 1, 0], [1, 0, 1], [1, 0, 0]])
    >>> certain_people(both.T @ both)
    {(0, 0): 1, (0, 1): 1, (1, 0): 1}
    """
    patterns = possible_patterns(counts)
    pairs = np.triu_indices(len(counts))
    equations = patterns[:, pairs[0]].T * patterns[:, pairs[1]].T
    known = LinearConstraint(equations, counts[pairs], counts[pairs])
    rng = np.random.default_rng(0)
    fewest = np.full(len(patterns), np.inf)

    def solve(cost: np.ndarray) -> bool:
        found = milp(
            cost,
            constraints=known,
            bounds=Bounds(0, counts[0, 0]),
            integrality=np.ones(len(patterns)),
            options={"time_limit": seconds},
        )
        if found.x is None:
            return False
        np.minimum(fewest, np.round(found.x), out=fewest)
        return True

    if not all(solve(rng.normal(size=len(patterns))) for _ in range(4)):
        return {}
    for place in np.flatnonzero(fewest > 0):
        if fewest[place] > 0 and not solve(np.eye(1, len(patterns), place)[0]):
            return {}
    return {tuple(row[1:].tolist()): int(n) for row, n in zip(patterns, fewest, strict=True) if n > 0}


def possible_patterns(counts: np.ndarray) -> np.ndarray:
    """All patterns of zeros and ones, after a leading one, that no empty cell of two columns rules out."""
    columns = len(counts) - 1
    found = np.column_stack([np.ones(2**columns, int), np.array(list(product((0, 1), repeat=columns)))])
    possible = np.ones(len(found), bool)
    for one in range(1, columns + 1):
        for other in range(one, columns + 1):
            both, first, second = counts[one, other], counts[one, one], counts[other, other]
            cells = {
                (1, 1): both,
                (1, 0): first - both,
                (0, 1): second - both,
                (0, 0): counts[0, 0] - first - second + both,
            }
            for (here, there), people in cells.items():
                if people <= 0:
                    possible &= ~((found[:, one] == here) & (found[:, other] == there))
    return found[possible]
