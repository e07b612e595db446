"""Tables with missing values as sums by missing pattern, and a Gaussian's moments estimated from them.

A pattern is the set of columns that a row observes. The sums add up over sites, so the estimate from several
sites is the pooled one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from unpooled.errors import DataError

ROUNDING = 1e-13
"""A column whose variance is below this share of its mean square about the centre counts as constant."""
SINGULAR = 1e-10
"""A covariance with an eigenvalue below this, in units of the column variances, counts as not estimable."""


class MomentEstimate(NamedTuple):
    """μ̂ relative to the centre, Σ̂ with divisor n, and the number of EM steps and whether they converged."""

    mean: Float[np.ndarray, " d"]
    covariance: Float[np.ndarray, "d d"]
    log_likelihood: float
    iterations: int
    converged: bool


def moments(patterns: Sequence[Pattern], *, tolerance: float = 1e-12, steps: int = 10_000) -> MomentEstimate:
    """Maximum likelihood by EM, until no parameter changes by more than `tolerance` column variances.

    A constant column has variance 0. The covariance of two columns that are never observed together is not
    identified; the value returned for it is the one EM reaches from uncorrelated columns.
    """
    stack = stacked(patterns)
    fit = fit_by_em(stack, tolerance, steps)
    mean, covariance = stack.centre.copy(), np.zeros((len(stack.centre),) * 2)
    mean[stack.columns] += fit.mean * stack.scale
    covariance[np.ix_(stack.columns, stack.columns)] = fit.covariance * np.outer(stack.scale, stack.scale)
    # Back to the original units: the density of every observed value is divided by its column's scale.
    height = fit.log_likelihood - float(stack.rows @ stack.seen @ np.log(stack.scale))
    return MomentEstimate(mean, covariance, height, fit.iterations, fit.converged)


class Stack(NamedTuple):
    """Patterns stacked into arrays, in standard units; 0 where a column is not observed.

    Constant columns are left out. `known`, `unknown` and `itself` are masks of pairs of columns: both
    observed, both missing, and an observed column with itself.
    """

    seen: Float[np.ndarray, "p k"]
    rows: Float[np.ndarray, " p"]
    mean: Float[np.ndarray, "p k"]
    scatter: Float[np.ndarray, "p k k"]
    known: Float[np.ndarray, "p k k"]
    unknown: Float[np.ndarray, "p k k"]
    itself: Float[np.ndarray, "p k k"]
    columns: np.ndarray
    centre: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " k"]


def stacked(patterns: Sequence[Pattern]) -> Stack:
    """Stack the patterns, equal ones merged and sorted, so that the order of sites does not matter."""
    patterns = [pattern for pattern in merged([patterns]) if pattern.count]
    if not patterns:
        raise DataError(
            "a test of missing values needs rows",
            found="no row with an observed value",
            remedy="check the columns of the study",
        )
    seen = np.array([pattern.observed for pattern in patterns])
    rows = np.array([pattern.count for pattern in patterns], float)
    sums, cross = np.zeros(seen.shape), np.zeros((*seen.shape, seen.shape[1]))
    for at, pattern in enumerate(patterns):
        sums[at, pattern.observed] = pattern.sum
        cross[at][np.ix_(pattern.observed, pattern.observed)] = pattern.cross
    present = rows @ seen
    if not np.all(present):
        raise DataError(
            "every column must be observed in some row",
            found="never observed: column " + ", ".join(str(1 + at) for at in np.flatnonzero(present == 0)),
            remedy="leave the column out of the test",
        )
    centre, square = sums.sum(axis=0) / present, np.einsum("pii->i", cross) / present
    variance = square - centre**2
    columns = np.flatnonzero(variance > ROUNDING * square)
    scale = np.sqrt(variance[columns])
    used = seen[:, columns].any(axis=1)
    seen, rows, sums, cross = seen[used], rows[used], sums[used], cross[used]
    mean = sums / rows[:, None]
    scatter = cross - np.einsum("p,pi,pj->pij", rows, mean, mean)
    here = seen[:, columns].astype(float)
    return Stack(
        seen=here,
        rows=rows,
        mean=here * (mean - centre)[:, columns] / scale,
        scatter=scatter[:, columns][:, :, columns] / np.outer(scale, scale),
        known=here[:, :, None] * here[:, None, :],
        unknown=(1.0 - here)[:, :, None] * (1.0 - here)[:, None, :],
        itself=here[:, :, None] * np.eye(len(columns)),
        columns=columns,
        centre=centre,
        scale=scale,
    )


def fit_by_em(stack: Stack, tolerance: float = 1e-12, steps: int = 10_000) -> MomentEstimate:
    """EM in standard units from uncorrelated columns; every third step starts from an extrapolation."""
    size = len(stack.columns)
    now, done, near, height = np.vstack([np.zeros(size), np.eye(size)]), 0, size == 0, 0.0
    try:
        while not near and done < steps:
            _, first = _step(stack, now)
            height, second = _step(stack, first)
            near = bool(np.abs(second - first).max() <= tolerance)
            now = second if near else _squarem_step(stack, (now, first, second), height)
            done += 2 if near else 3
        if size:
            height, _ = _step(stack, now)
    except np.linalg.LinAlgError:
        raise DataError(
            "the covariance of the columns must be estimable",
            found=f"a combination of {size} columns that does not vary over {int(stack.rows.sum())} rows",
            remedy="leave out a column that the others determine or that few rows observe, or add rows",
        ) from None
    return MomentEstimate(now[0], now[1:], height, done, near)


def _squarem_step(stack: Stack, last: tuple[np.ndarray, np.ndarray, np.ndarray], height: float) -> np.ndarray:
    """SQUAREM (Varadhan and Roland 2008): a step from the extrapolation, unless log L is lower there."""
    now, first, second = last
    change, bend = first - now, second - 2.0 * first + now
    length = max(1.0, float(np.linalg.norm(change) / np.linalg.norm(bend))) if bend.any() else 1.0
    try:
        reached, third = _step(stack, now + 2.0 * length * change + length**2 * bend)
    except np.linalg.LinAlgError:
        return second
    # Near the maximum, rounding decides which of two log likelihoods is larger.
    return third if reached >= height - 1e-12 * abs(height) else second


def _step(stack: Stack, now: Float[np.ndarray, "k+1 k"]) -> tuple[float, Float[np.ndarray, "k+1 k"]]:
    """log L (without its constant) at μ, the first row, and Σ, the others; and the next μ and Σ by EM."""
    mean, covariance = now[0], now[1:]
    if np.linalg.eigvalsh(covariance)[0] < SINGULAR:
        raise np.linalg.LinAlgError
    size, rows, seen = len(mean), stack.rows, stack.seen
    root = roots(stack, covariance)
    away = seen * (stack.mean - mean)
    weighted = rows[:, None] * away
    square = stack.scatter + weighted[:, :, None] * away[:, None, :]
    # NumPy solves a stack of systems at once, SciPy's triangular solve one at a time.
    half = np.linalg.solve(root, np.concatenate([seen[:, :, None] * covariance, square], axis=2))
    whole = np.linalg.solve(root.mT, half)
    # Σ_p⁻¹Σ_p·: the regression of missing columns on observed ones; the identity for observed columns.
    gain = whole[:, :, :size] * (1.0 - seen)[:, None, :] + stack.itself
    # Σ − Σ_·pΣ_p⁻¹Σ_p·: the conditional covariance of the missing columns.
    half = half[:, :, :size]
    left = stack.unknown * (covariance - half.mT @ half)
    shift = (weighted[:, None, :] @ gain).sum(axis=(0, 1)) / rows.sum()
    spread = (gain.mT @ square @ gain + rows[:, None, None] * left).sum(axis=0) / rows.sum()
    spread = 0.5 * (spread + spread.T) - np.outer(shift, shift)
    # Σ_p −½n_p log|Σ_p| − ½tr(Σ_p⁻¹ square_p)
    height = -rows @ np.log(np.einsum("pii->pi", root)).sum(axis=1)
    height -= 0.5 * np.einsum("pii->", whole[:, :, size:])
    return float(height), np.vstack([mean + shift, spread])


def roots(stack: Stack, covariance: np.ndarray) -> Float[np.ndarray, "p k k"]:
    """The factor L of every Σ_p = LLᵀ, with 1 on the diagonal of columns that p does not observe."""
    return np.linalg.cholesky(stack.known * covariance + np.eye(len(covariance)) - stack.itself)


@dataclass(frozen=True)
class Pattern:
    """The rows that observe the same o of d columns: their number, sums and cross-products about a centre."""

    observed: Bool[np.ndarray, " d"]
    count: int
    sum: Float[np.ndarray, " o"]
    cross: Float[np.ndarray, "o o"]


class Suppressed(NamedTuple):
    """The patterns with enough rows, and how many patterns and rows were dropped."""

    kept: tuple[Pattern, ...]
    patterns: int
    rows: int


def patterns_of(values: Float[np.ndarray, "n d"], centre: Float[np.ndarray, " d"]) -> tuple[Pattern, ...]:
    """The patterns of one table, with NaN for missing values; rows without an observed value are left out.

    The centre should be near the column means: with a distant one, the squares lose the spread to rounding.

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
    """The patterns of several sites, equal ones added up; all sites must have used the same centre."""
    together: dict[tuple[bool, ...], Pattern] = {}
    for new in (pattern for site in sites for pattern in site):
        key = tuple(new.observed.tolist())
        old = together.get(key)
        if old is not None:
            new = Pattern(new.observed, old.count + new.count, old.sum + new.sum, old.cross + new.cross)
        together[key] = new
    return tuple(together[key] for key in sorted(together))


def suppressed(patterns: Sequence[Pattern], least: int) -> Suppressed:
    """Drop the patterns with fewer than `least` rows.

    The sums of all dropped rows together follow from those of the whole table, so that the next smallest
    patterns are dropped too until the dropped rows are none or at least `least`.

    >>> def some(count): return Pattern(np.array([True]), count, np.zeros(1), np.zeros((1, 1)))
    >>> suppressed([some(2), some(30), some(40)], 10)[1:]
    (2, 32)
    """
    by_size = sorted(patterns, key=lambda pattern: pattern.count)
    dropped = sum(pattern.count < least for pattern in by_size)
    while dropped < len(by_size) and 0 < sum(pattern.count for pattern in by_size[:dropped]) < least:
        dropped += 1
    few = {id(pattern) for pattern in by_size[:dropped]}
    kept = tuple(pattern for pattern in patterns if id(pattern) not in few)
    return Suppressed(kept, dropped, sum(pattern.count for pattern in by_size[:dropped]))
