"""Columns of a site's table changed so that no person dominates a sum that leaves the site.

Sums of products reveal a person who is far from everybody else in a column, or one of few who differ from the
most common value: subtracting that value from the column makes everybody else's contribution small. So the
most extreme values on either side are moved to the `least`-th, where nobody is alone. A column is then
clipped within every group whose sums could be worked out, until the largest squared deviation is at most a
`least`-th of their sum. Deviations are taken from the column's median, its mean and its common values.
Clipping moves these, so that it is repeated until it holds for all of them. A column for which no clipping
suffices, such as a flag that few people carry, is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

COMMON = 0.1
"""A value is common if at least this share of the people have it."""
STEPS = 60
"""Halvings of the interval that holds the clipping limit."""
PASSES = 100
"""Most rounds of clipping about all centres; a column that needs more is left out."""
MARGIN = 1.01
"""Clipping aims at this multiple of `least`, so that few rounds suffice."""


class Protected(NamedTuple):
    """The columns after clipping, and which of them must be left out because clipping does not suffice."""

    values: np.ndarray
    left_out: np.ndarray
    clipped: np.ndarray
    """How many values of each column were clipped."""


def protect(
    values: np.ndarray,
    groups: np.ndarray,
    least: float,
    *,
    extremes: bool = False,
    weight: np.ndarray | None = None,
) -> Protected:
    """Clip the columns of `values` [n, p] for the groups of people [g, n]; NaN is a missing value.

    With `extremes`, the most extreme values of a column may stay as they are, if nobody dominates. Sums of
    people with a `weight` contain each squared deviation as often as the weight says.

    >>> flag = np.r_[np.ones(3), np.zeros(37)][:, None]
    >>> protect(flag, np.ones((1, 40), bool), 5.0).left_out.tolist()
    [True]
    >>> far = np.r_[100.0, np.linspace(-1.0, 1.0, 39)][:, None]
    >>> found = protect(far, np.ones((1, 40), bool), 5.0)
    >>> found.left_out.tolist(), found.clipped.tolist(), bool(found.values.max() < 10.0)
    ([False], [8], True)
    """
    root = np.ones(len(values)) if weight is None else np.sqrt(weight)
    found = [_protect_column(column, groups, least, extremes, root) for column in values.T]
    clipped = np.column_stack([one for one, _ in found]) if found else values
    changed = np.sum((clipped != values) & ~np.isnan(values), axis=0)
    return Protected(clipped, np.array([left for _, left in found], dtype=bool), changed)


def capped_weights(weight: np.ndarray, groups: np.ndarray, least: float) -> np.ndarray:
    """Sampling weights capped so that nobody dominates the sum of their squares in any group [g, n].

    >>> capped_weights(np.array([9.0, 1.0, 1.0, 1.0, 1.0]), np.ones((1, 5), bool), 2.0).round(2).tolist()
    [1.98, 1.0, 1.0, 1.0, 1.0]
    """
    if not least:
        return weight
    limits = _limits(weight, groups, least)
    if limits is None:  # a group of few people, which other limits refuse
        return np.full_like(weight, weight.min())
    return np.minimum(weight, np.min(np.where(groups, limits[:, None], np.inf), axis=0, initial=np.inf))


def fewest_people(values: np.ndarray, groups: np.ndarray, weight: np.ndarray | None = None) -> float:
    """The smallest number of effective people behind the squares of any column in any group.

    >>> fewest_people(np.array([[1.0], [-1.0], [1.0], [-1.0]]), np.ones((1, 4), bool))
    4.0
    """
    root, found = np.ones(len(values)) if weight is None else np.sqrt(weight), [np.inf]
    for column in values.T:
        seen = ~np.isnan(column)
        if np.any(column[seen] != column[seen][:1]):
            deviation = np.where(seen, root * np.abs(column - np.nanmedian(column)), 0.0)
            every = np.where(groups, deviation, 0.0)
            every = every[every.max(axis=1) > 0.0]
            found.append(float(_people(every, every.max(axis=1)).min(initial=np.inf)))
    return min(found)


def _protect_column(
    column: np.ndarray, groups: np.ndarray, least: float, extremes: bool, root: np.ndarray
) -> tuple[np.ndarray, bool]:
    seen = ~np.isnan(column)
    if not seen.any():
        return column, False
    if not extremes and len(_centres(column[seen])) == 2:
        column = _without_extremes(column, int(np.ceil(least)))
    for _ in range(PASSES):
        before = column
        for centre in _centres(column[seen]):
            deviation = np.where(seen, root * np.abs(column - centre), 0.0)
            limits = _limits(deviation, groups, least)
            if limits is None:
                return column, True
            limit = np.min(np.where(groups, limits[:, None], np.inf), axis=0) / root  # of every person
            column = np.clip(column, centre - limit, centre + limit)
        if np.array_equal(before, column, equal_nan=True):
            return column, False
    return column, True


def _without_extremes(column: np.ndarray, least: int) -> np.ndarray:
    """Clipped so that at least `least` people share the most extreme value on either side."""
    values = np.sort(column[~np.isnan(column)])
    if len(values) <= 2 * least:
        return column
    return np.clip(column, values[least - 1], values[-least])


def _centres(values: np.ndarray) -> list[float]:
    """The median, the mean and the common values."""
    distinct, counts = np.unique(values, return_counts=True)
    common = distinct[counts >= max(COMMON * len(values), 2)]
    return [float(np.median(values)), float(np.mean(values)), *common.tolist()]


def _limits(deviation: np.ndarray, groups: np.ndarray, least: float) -> np.ndarray | None:
    """The largest clipping limit of each group under which nobody dominates it, inf if none is needed.

    None if a group has too few people who deviate. Σ min(d, c)² / c² falls as c rises, from the number of
    people with d > 0.
    """
    every = np.where(groups, deviation, 0.0)
    largest, none = every.max(axis=1), 1e-9 * max(float(deviation.max()), 1e-300)  # deviations of rounding
    limits = np.full(len(every), np.inf)
    varied = largest > none
    over = varied.copy()
    over[varied] = _people(every[varied], largest[varied]) <= least
    every, low, high, least = every[over], np.zeros(over.sum()), largest[over], MARGIN * least
    if np.any(np.sum(every > none, axis=1) <= least):
        return None
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        enough = _people(every, middle) > least
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    limits[over] = low
    return limits if np.all(low > 0.0) else None


def _people(deviation: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Effective people of every group after clipping at these limits."""
    return np.sum(np.minimum(deviation, limit[:, None]) ** 2, axis=1) / limit**2
