"""Tables with missing values as sums by missing pattern: they add up over sites."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float


@dataclass(frozen=True)
class Pattern:
    """Rows that observe the same o of d columns: how many, sums and cross-products about a common centre."""

    observed: Bool[np.ndarray, " d"]
    count: int
    sum: Float[np.ndarray, " o"]
    cross: Float[np.ndarray, "o o"]


class Suppressed(NamedTuple):
    """Patterns that enough rows show, and how many patterns and rows were dropped."""

    kept: tuple[Pattern, ...]
    patterns: int
    rows: int


def patterns_of(values: Float[np.ndarray, "n d"], centre: Float[np.ndarray, " d"]) -> tuple[Pattern, ...]:
    """The patterns of one table, NaN where a value is missing; rows with nothing observed are left out.

    The centre should lie near the columns' means: squares of a far offset drown the spread about it.

    >>> table = np.array([[1.0, 2.0], [3.0, np.nan], [5.0, np.nan], [np.nan, np.nan]])
    >>> [(p.observed.tolist(), p.count, p.sum.tolist()) for p in patterns_of(table, np.array([2.0, 2.0]))]
    [([True, False], 2, [4.0]), ([True, True], 1, [-1.0, 0.0])]
    """
    seen = ~np.isnan(values)
    found = []
    for observed in np.unique(seen[seen.any(axis=1)], axis=0):
        rows = values[np.all(seen == observed, axis=1)][:, observed] - centre[observed]
        found.append(Pattern(observed, len(rows), rows.sum(axis=0), rows.T @ rows))
    return tuple(found)


def merged(sites: Iterable[Sequence[Pattern]]) -> tuple[Pattern, ...]:
    """Equal patterns of several sites added, which all used the same centre."""
    together: dict[tuple[bool, ...], Pattern] = {}
    for new in (pattern for site in sites for pattern in site):
        key = tuple(new.observed.tolist())
        old = together.get(key)
        if old is not None:
            new = Pattern(new.observed, old.count + new.count, old.sum + new.sum, old.cross + new.cross)
        together[key] = new
    return tuple(together[key] for key in sorted(together))


def suppressed(patterns: Sequence[Pattern], least: int) -> Suppressed:
    """Without the patterns that fewer than `least` rows show."""
    kept = tuple(pattern for pattern in patterns if pattern.count >= least)
    rows = sum(pattern.count for pattern in patterns) - sum(pattern.count for pattern in kept)
    return Suppressed(kept, len(patterns) - len(kept), rows)
