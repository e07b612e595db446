"""Little's (1988) test whether values are missing completely at random, from sums by missing pattern.

μ̂ and Σ̂ are those of a Gaussian by maximum likelihood; d² = Σ_p n_p (ȳ_p − μ̂_p)ᵀ Σ̂_p⁻¹ (ȳ_p − μ̂_p) asks
whether the patterns' means agree with μ̂. All of it needs of every pattern p only how many rows show it, and
the sums and cross-products of the columns it observes: sums over sites, so the sites' test is the pooled one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import chi2

from unpooled.errors import DataError

ROUNDING = 1e-13
"""A variance below this share of the mean square about the centre is rounding: the column is constant."""
SINGULAR = 1e-10
"""Below this eigenvalue, in units of the columns' variances, a covariance counts as not estimable."""


@dataclass(frozen=True)
class Pattern:
    """Rows that observe the same o of d columns: how many, sums and cross-products about a common centre."""

    observed: Bool[np.ndarray, " d"]
    count: int
    sum: Float[np.ndarray, " o"]
    cross: Float[np.ndarray, "o o"]


class Moments(NamedTuple):
    """μ̂ about the centre, and Σ̂ with divisor n; how many EM steps, and whether they came to rest."""

    mean: Float[np.ndarray, " d"]
    covariance: Float[np.ndarray, "d d"]
    log_likelihood: float
    iterations: int
    converged: bool


class McarTest(NamedTuple):
    """d², its degrees of freedom, P(χ² ≥ d²) (nan with 0 degrees), and what the test rests on."""

    statistic: float
    degrees: int
    p_value: float
    patterns: int
    rows: int
    converged: bool


class Stratified(NamedTuple):
    """d² and degrees of freedom added over the sites' own tests; why the other sites are left out."""

    statistic: float
    degrees: int
    p_value: float
    sites: dict[str, McarTest]
    left_out: dict[str, str]


class Vote(NamedTuple):
    """The share of the sites that reject by themselves, of those that can test; more than half reject."""

    share: float
    rejected: bool
    p_values: dict[str, float]
    left_out: dict[str, str]


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


def moments(patterns: Sequence[Pattern], *, tolerance: float = 1e-12, steps: int = 10_000) -> Moments:
    """Maximum likelihood by EM from the sums alone, until no number moves by `tolerance` column variances.

    A constant column has variance 0. The covariance of two columns that are never observed together is not
    in the likelihood, nor in d²: what is returned for it is where EM came to from uncorrelated columns.
    """
    stack = _stacked(patterns)
    fit = _climbed(stack, tolerance, steps)
    mean, covariance = stack.centre.copy(), np.zeros((len(stack.centre),) * 2)
    mean[stack.columns] += fit.mean * stack.scale
    covariance[np.ix_(stack.columns, stack.columns)] = fit.covariance * np.outer(stack.scale, stack.scale)
    # Back from standard units: every observed value's density is divided by its column's scale.
    height = fit.log_likelihood - float(stack.rows @ stack.seen @ np.log(stack.scale))
    return Moments(mean, covariance, height, fit.iterations, fit.converged)


def little(patterns: Sequence[Pattern]) -> McarTest:
    """Little's d² with Σ_p k_p − d degrees of freedom, k_p the columns that pattern p observes.

    Σ̂ has divisor n, not n − 1: so do naniar and BaylorEdPsych, and so R's airquality gives d² = 35.1062.
    (naniar gives 35.1061: its EM stops at 1e-4.) Constant columns count neither in k_p nor in d.
    """
    stack = _stacked(patterns)
    fit = _climbed(stack)
    away = stack.seen * (stack.mean - fit.mean)
    white = np.linalg.solve(_roots(stack, fit.covariance), away[:, :, None])[:, :, 0]
    statistic = float(stack.rows @ np.sum(white**2, axis=1))
    degrees = int(stack.seen.sum()) - len(stack.columns)
    rows = int(stack.rows.sum())
    return McarTest(statistic, degrees, _tail(statistic, degrees), len(stack.rows), rows, fit.converged)


def stratified(sites: Mapping[str, Sequence[Pattern]]) -> Stratified:
    """The test within sites: right where sites differ in their means and in how much is missing.

    Pooled, such a difference looks like values that are not missing completely at random.
    """
    tests, left_out = _alone(sites)
    statistic = sum((test.statistic for test in tests.values()), 0.0)
    degrees = sum(test.degrees for test in tests.values())
    return Stratified(statistic, degrees, _tail(statistic, degrees), tests, left_out)


def vote(sites: Mapping[str, Sequence[Pattern]], level: float) -> Vote:
    """Every site tests alone and the majority decides.

    It has almost no power: where each site rejects with a chance below ½, more sites make the majority's
    rejection rarer, not more frequent. It is here to be compared with, not to be relied on.
    """
    tests, left_out = _alone(sites)
    p_values = {site: test.p_value for site, test in tests.items() if test.degrees}
    left_out |= {site: "no degrees of freedom" for site in tests if site not in p_values}
    share = float(np.mean([p < level for p in p_values.values()])) if p_values else np.nan
    return Vote(share, share > 0.5, p_values, left_out)


def _alone(sites: Mapping[str, Sequence[Pattern]]) -> tuple[dict[str, McarTest], dict[str, str]]:
    """Every site's own test, and why some have none."""
    tests: dict[str, McarTest] = {}
    left_out: dict[str, str] = {}
    for site, patterns in sites.items():
        try:
            test = little(patterns)
        except DataError as error:
            left_out[site] = error.found
            continue
        if test.converged:
            tests[site] = test
        else:
            left_out[site] = "EM did not converge"
    return tests, left_out


def _tail(statistic: float, degrees: int) -> float:
    return float(chi2.sf(statistic, degrees)) if degrees else np.nan


class _Stack(NamedTuple):
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


def _stacked(patterns: Sequence[Pattern]) -> _Stack:
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
    return _Stack(
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


def _climbed(stack: _Stack, tolerance: float = 1e-12, steps: int = 10_000) -> Moments:
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


def _leapt(stack: _Stack, last: tuple[np.ndarray, np.ndarray, np.ndarray], height: float) -> np.ndarray:
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


def _step(stack: _Stack, now: Float[np.ndarray, "k+1 k"]) -> tuple[float, Float[np.ndarray, "k+1 k"]]:
    """log L at μ (the first row) and Σ (the others), without its constant, and EM's next μ and Σ."""
    mean, covariance = now[0], now[1:]
    if np.linalg.eigvalsh(covariance)[0] < SINGULAR:
        raise np.linalg.LinAlgError
    size, rows, seen = len(mean), stack.rows, stack.seen
    root = _roots(stack, covariance)
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


def _roots(stack: _Stack, covariance: np.ndarray) -> Float[np.ndarray, "p k k"]:
    """L of every Σ_p = LLᵀ, with 1 on the diagonal of what p does not observe."""
    return np.linalg.cholesky(stack.known * covariance + np.eye(len(covariance)) - stack.itself)
