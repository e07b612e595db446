"""Mean and covariance of a Gaussian by maximum likelihood, from sums by missing pattern."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from unpooled.errors import DataError
from unpooled.maths.patterns import Pattern, merged

ROUNDING = 1e-13
"""A variance below this share of the mean square about the centre is rounding: the column is constant."""
SINGULAR = 1e-10
"""Below this eigenvalue, in units of the columns' variances, a covariance counts as not estimable."""


class Moments(NamedTuple):
    """μ̂ about the centre, and Σ̂ with divisor n; how many EM steps, and whether they came to rest."""

    mean: Float[np.ndarray, " d"]
    covariance: Float[np.ndarray, "d d"]
    log_likelihood: float
    iterations: int
    converged: bool


def moments(patterns: Sequence[Pattern], *, tolerance: float = 1e-12, steps: int = 10_000) -> Moments:
    """Maximum likelihood by EM from the sums alone, until no number moves by `tolerance` column variances.

    A constant column has variance 0. The covariance of two columns that are never observed together is not
    in the likelihood, nor in d²: what is returned for it is where EM came to from uncorrelated columns.
    """
    stack = stacked(patterns)
    fit = climbed(stack, tolerance, steps)
    mean, covariance = stack.centre.copy(), np.zeros((len(stack.centre),) * 2)
    mean[stack.columns] += fit.mean * stack.scale
    covariance[np.ix_(stack.columns, stack.columns)] = fit.covariance * np.outer(stack.scale, stack.scale)
    # Back from standard units: every observed value's density is divided by its column's scale.
    height = fit.log_likelihood - float(stack.rows @ stack.seen @ np.log(stack.scale))
    return Moments(mean, covariance, height, fit.iterations, fit.converged)


class Stack(NamedTuple):
    """Patterns in standard units, stacked: 0 wherever a column is not observed. Only columns that vary.

    `known`, `unknown` and `itself` are masks: both columns observed, both missing, a column with itself.
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
    """Equal patterns count as one, in an order of their own: neither sites nor their order matter."""
    patterns = [pattern for pattern in merged([patterns]) if pattern.count]
    if not patterns:
        raise DataError(
            "a test of missing values needs rows", found="no row with a value", remedy="check the columns"
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


def climbed(stack: Stack, tolerance: float = 1e-12, steps: int = 10_000) -> Moments:
    """EM in standard units from uncorrelated columns, every third step from an extrapolation of two."""
    size = len(stack.columns)
    now, done, near, height = np.vstack([np.zeros(size), np.eye(size)]), 0, size == 0, 0.0
    try:
        while not near and done < steps:
            _, first = _step(stack, now)
            height, second = _step(stack, first)
            near = bool(np.abs(second - first).max() <= tolerance)
            now = second if near else _leapt(stack, (now, first, second), height)
            done += 2 if near else 3
        if size:
            height, _ = _step(stack, now)
    except np.linalg.LinAlgError:
        raise DataError(
            "the columns' covariance must be estimable",
            found=f"a combination of {size} columns that does not vary over {int(stack.rows.sum())} rows",
            remedy="leave out a column that others determine or that few rows observe, or add rows",
        ) from None
    return Moments(now[0], now[1:], height, done, near)


def _leapt(stack: Stack, last: tuple[np.ndarray, np.ndarray, np.ndarray], height: float) -> np.ndarray:
    """SQUAREM (Varadhan and Roland 2008): a step from the extrapolation, where log L is not lower there."""
    now, first, second = last
    change, bend = first - now, second - 2.0 * first + now
    length = max(1.0, float(np.linalg.norm(change) / np.linalg.norm(bend))) if bend.any() else 1.0
    try:
        reached, third = _step(stack, now + 2.0 * length * change + length**2 * bend)
    except np.linalg.LinAlgError:
        return second
    # Near the top, rounding decides which of two heights is the larger.
    return third if reached >= height - 1e-12 * abs(height) else second


def _step(stack: Stack, now: Float[np.ndarray, "k+1 k"]) -> tuple[float, Float[np.ndarray, "k+1 k"]]:
    """log L at μ (the first row) and Σ (the others), without its constant, and EM's next μ and Σ."""
    mean, covariance = now[0], now[1:]
    if np.linalg.eigvalsh(covariance)[0] < SINGULAR:
        raise np.linalg.LinAlgError
    size, rows, seen = len(mean), stack.rows, stack.seen
    root = roots(stack, covariance)
    away = seen * (stack.mean - mean)
    weighted = rows[:, None] * away
    square = stack.scatter + weighted[:, :, None] * away[:, None, :]
    # NumPy solves a stack of systems at once, SciPy's triangular solve one after the other.
    half = np.linalg.solve(root, np.concatenate([seen[:, :, None] * covariance, square], axis=2))
    whole = np.linalg.solve(root.mT, half)
    # Σ_p⁻¹Σ_p·: what the observed columns tell of a missing one; an observed one is itself.
    gain = whole[:, :, :size] * (1.0 - seen)[:, None, :] + stack.itself
    # Σ − Σ_·pΣ_p⁻¹Σ_p·: what they leave open of the missing columns.
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
    """L of every Σ_p = LLᵀ, with 1 on the diagonal of what p does not observe."""
    return np.linalg.cholesky(stack.known * covariance + np.eye(len(covariance)) - stack.itself)
