"""What one site tells of its people, and estimates with errors from these sums.

For columns c of people with weight ω, a site tells Σωc and Σuuᵀ, where u is the sum of ωc over a cluster, or
a single person's. A ratio of sums r = aᵀC / bᵀC then has the influence function uᵀ(a − rb) / bᵀC, so that its
variance follows from the second sum, and so does that of any difference of ratios.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

GROUPS = 5
BINS, FURTHEST = 1000, 5.0
"""Bins of the histogram of predicted effects, and how many sds about their mean it reaches."""
NOBODY, EVERYBODY, OBSERVED, PREDICTED, RULE = POLICIES = (
    "nobody", "everybody", "as observed", "predicted effect", "rule",
)  # fmt: skip
INDICATORS = ("one", *(f"treated {name}" for name in POLICIES), *(f"in {group}" for group in range(GROUPS)))
"""The first columns, of zeros and ones: everybody, who is treated under each policy, who is in each group."""
COLUMNS = (
    *INDICATORS,
    *(f"outcome {name}" for name in POLICIES),
    *(f"{what} {group}" for what in ("effect", "predicted") for group in range(GROUPS)),
    *("S", "SS", "T", "ST"),
)
"""The other columns: for each policy the score of the outcome; for each group the score of the effect and the
prediction; and what a regression of scores T on predictions S needs."""


class People(NamedTuple):
    """People of a site whom no fit has seen."""

    treatment: np.ndarray
    outcome: np.ndarray
    scores: np.ndarray
    """Doubly robust scores of the mean outcomes under control and under treatment [n, 2]."""
    predicted: np.ndarray
    chosen: np.ndarray
    """Whom the rule treats."""
    weight: np.ndarray
    cluster: np.ndarray | None = None


class Sums(NamedTuple):
    """Σωc and Σuuᵀ, of one site or of all, and numbers of people."""

    first: np.ndarray
    second: np.ndarray
    people: np.ndarray
    """How many people are in both of two `INDICATORS`, each counted once whatever their weight."""


class Estimate(NamedTuple):
    """Ratios of sums, and the coefficients of the columns in their influence functions."""

    value: np.ndarray
    influence: np.ndarray
    """[estimates, columns]."""
    weight: np.ndarray
    """The sums by which was divided."""


def doubly_robust(
    treatment: np.ndarray, outcome: np.ndarray, means: np.ndarray, propensity: np.ndarray, trim: float
) -> np.ndarray:
    """Scores γ_w = μ_w + 1{W = w} (y − μ_w) / P(W = w), [n, 2]."""
    chance = np.clip(propensity, trim, 1.0 - trim)
    arms = np.stack([1.0 - treatment, treatment], axis=1)
    return means + arms * (outcome[:, None] - means) / np.stack([1.0 - chance, chance], axis=1)


def cut_points(sites: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Predictions that divide the people of all sites into groups of equal size, from a histogram.

    `sites` has the predictions and weights of each site, of which only sums are combined.
    """
    people, total = np.sum([[w.sum(), w @ s] for s, w in sites], axis=0)
    mean = total / people
    sd = np.sqrt(sum(w @ (s - mean) ** 2 for s, w in sites) / people)
    if sd <= 1e-9 * abs(mean):
        return np.full(GROUPS - 1, np.inf)  # all are in the first group
    edges = mean + sd * np.linspace(-FURTHEST, FURTHEST, BINS + 1)
    counts = np.sum(
        [np.histogram(np.clip(s, edges[0], edges[-1]), edges, weights=w)[0] for s, w in sites], axis=0
    )
    shares = np.cumsum(counts) / people
    return edges[1:][np.searchsorted(shares, np.arange(1, GROUPS) / GROUPS - 1e-12)]


def site_sums(people: People, cuts: np.ndarray, *, cost: float, sign: float) -> Sums:
    """What one site tells: only sums, over at least all people of a part."""
    effect = people.scores[:, 1] - people.scores[:, 0]
    predicted = people.predicted
    treated = np.stack(
        [
            np.zeros_like(predicted), np.ones_like(predicted), people.treatment,
            sign * predicted > cost, people.chosen,
        ],
        axis=1,
    )  # fmt: skip
    outcomes = people.scores[:, :1] + treated * effect[:, None]
    outcomes[:, POLICIES.index(OBSERVED)] = people.outcome
    groups = np.searchsorted(cuts, predicted)[:, None] == np.arange(GROUPS)
    regression = np.stack([predicted, predicted**2, effect, predicted * effect], axis=1)
    indicators = np.concatenate([np.ones((len(predicted), 1)), treated, groups], axis=1)
    parts = [indicators, outcomes, groups * effect[:, None], groups * predicted[:, None], regression]
    weighted = people.weight[:, None] * np.concatenate(parts, axis=1)
    together = weighted
    if people.cluster is not None:
        together = np.zeros((people.cluster.max(initial=0) + 1, weighted.shape[1]))
        np.add.at(together, people.cluster, weighted)
    return Sums(weighted.sum(axis=0), together.T @ together, indicators.T @ indicators)


def over_sites(sites: Sequence[Sums]) -> Sums:
    return Sums(*(np.sum(parts, axis=0) for parts in zip(*sites, strict=True)))


def column(name: str) -> np.ndarray:
    """The unit vector of a column."""
    return np.eye(len(COLUMNS))[COLUMNS.index(name)]


def ratios(sums: Sums, above: np.ndarray, below: np.ndarray) -> Estimate:
    """Ratios of sums aᵀC / bᵀC, for rows a and b; NaN where nobody is divided by."""
    divisor = below @ sums.first
    divisor = np.where(divisor > 0.0, divisor, np.nan)
    value = above @ sums.first / divisor
    return Estimate(value, (above - value[:, None] * below) / divisor[:, None], divisor)


def slope(sums: Sums) -> tuple[float, float]:
    """The slope of a regression of scores on predictions, and its error; NaN if predictions are equal."""
    n, s, ss, t, st = (float(column(name) @ sums.first) for name in ("one", "S", "SS", "T", "ST"))
    centre, level = s / n, t / n
    spread = ss - s * centre
    if spread <= 1e-10 * ss:
        return np.nan, np.nan
    value = (st - s * level) / spread
    # (S − S̄)(T − T̄ − β(S − S̄)), multiplied out
    weights = {"ST": 1.0, "SS": -value, "T": -centre, "S": 2.0 * value * centre - level}
    weights["one"] = centre * level - value * centre**2
    influence = sum(weight * column(name) for name, weight in weights.items()) / spread
    return value, float(np.sqrt(influence @ sums.second @ influence))


def combined(parts: Sequence[tuple[Sums, Estimate]]) -> tuple[np.ndarray, np.ndarray]:
    """Averages of the parts' estimates over people, with standard errors.

    Each part is independent given those before it, so the variances add up.
    """
    weight = np.stack([found.weight for _, found in parts])
    share = weight / np.nansum(weight, axis=0)
    variance = np.stack(
        [np.einsum("ec,cd,ed->e", found.influence, sums.second, found.influence) for sums, found in parts]
    )
    value = np.stack([found.value for _, found in parts])
    nobody = np.isnan(weight).all(axis=0)
    mean, error = np.nansum(share * value, axis=0), np.sqrt(np.nansum(share**2 * variance, axis=0))
    return np.where(nobody, np.nan, mean), np.where(nobody, np.nan, error)


def combined_slopes(slopes: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Slopes of the parts, each weighted by 1/σ, so that the z-score is the sum of theirs divided by √parts.

    It then is standard normal if no slope differs from 0, however the predictions depend on earlier parts.
    """
    known = np.array([one for one in slopes if np.isfinite(one[0]) and one[1] > 0.0])
    if not len(known):
        return np.nan, np.nan
    precision = (1.0 / known[:, 1]).sum()
    return float((known[:, 0] / known[:, 1]).sum() / precision), float(np.sqrt(len(known)) / precision)


def ends(value: np.ndarray, error: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    reach = ndtri(1.0 - alpha / 2.0) * error
    return value - reach, value + reach
