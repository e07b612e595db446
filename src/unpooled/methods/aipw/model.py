"""AIPW at the coordinator: normal equations pooled over sites, and estimates with standard errors.

Batches of regressions are [batch, regression, …]: one regression of the treatment, two of the outcome (by
arm). Estimates are computed per site, averaged over sites, or from all people as one stacked table.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import ndtri

from unpooled.disclosure.by_site import BySite
from unpooled.maths.linear_algebra import unpack
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays

ALPHA = 0.05
"""Intervals have a level of 1 − ALPHA."""


class System(NamedTuple):
    """Normal equations along the leading axes, and the other sums that came with them."""

    gram: np.ndarray
    score: np.ndarray
    rest: dict[str, np.ndarray]


class Pooling(Protocol):
    """How regressions are shared between sites: builds normal equations and expands their solutions."""

    @property
    def sites(self) -> int: ...

    @property
    def width(self) -> int:
        """Number of features, with the intercept."""
        ...

    def shape(self, batch: int, regressions: int) -> tuple[int, ...]:
        """Shape of the solutions."""
        ...

    def system(self, reply: Statistics) -> System:
        """The normal equations of an aggregated reply."""
        ...

    def own(self, solution: np.ndarray) -> np.ndarray:
        """Coefficients of each site, [batch, site, regression, feature]."""
        ...


class PooledRegressions(NamedTuple):
    """The same coefficients at all sites, with a separate intercept for each site if `offsets`."""

    sites: int
    width: int
    offsets: bool

    def shape(self, batch: int, regressions: int) -> tuple[int, ...]:
        return batch, regressions, self.width + self.offsets * self.sites

    def system(self, reply: Statistics) -> System:
        sums, own = dict(reply.summed), reply.per_site
        gram, score = np.asarray(unpack(sums.pop("gram"))), np.asarray(sums.pop("score"))
        if self.offsets:
            rows, start = (np.moveaxis(own[name], 1, 2) for name in ("gram_row", "score_start"))
            corner = rows[..., :1] * np.eye(self.sites)
            above = np.concatenate([gram, np.swapaxes(rows, -1, -2)], axis=-1)
            gram = np.concatenate([above, np.concatenate([rows, corner], axis=-1)], axis=-2)
            score = np.concatenate([score, start], axis=-1)
        return System(gram, score, sums)

    def own(self, solution: np.ndarray) -> np.ndarray:
        found = np.repeat(solution[:, None, :, : self.width], self.sites, axis=1)
        if self.offsets:
            found[..., 0] += np.moveaxis(solution[..., self.width :], 2, 1)
        return found


class Estimates(NamedTuple):
    """Estimates and standard errors, of the same shape."""

    estimate: np.ndarray
    error: np.ndarray


def scores_of_everybody(own: Arrays) -> Arrays:
    """The sums of the scores of the average effect over everybody, from those of all groups."""
    return {
        "people": own["people"][..., 0],
        "weight": own["weight"][..., 0],
        "mean": own["mean"][..., 0, 0],
        "squares": own["products"][..., 0],
        "noise": own["noise"][..., 0],
    }


def of_scores(sums: Arrays) -> Estimates:
    """The mean of the doubly robust scores, and its standard error."""
    return Estimates(sums["mean"], _standard_error(sums, "squares"))


def of_residuals(sums: Arrays) -> Estimates:
    """As `of_scores`, with the standard error as an estimate of the effect in these very people.

    How their effects differ from each other is then no error; the regressions are taken as known.
    """
    return Estimates(sums["mean"], _standard_error(sums, "noise"))


def _standard_error(sums: Arrays, squares: str) -> np.ndarray:
    """√(Σ(wu)² n/(n − 1))/Σw for n people, or clusters, whose sampling weights w are 1 if there are none."""
    people = sums["people"]
    return np.sqrt(sums[squares] * people / np.maximum(people - 1.0, 1.0)) / sums["weight"]


def stacked_scores(sums: Arrays) -> Arrays:
    """The sums of all people as one table, with deviations from the common mean; sites are along the first
    axis."""
    people, weight = sums["people"].sum(axis=0), sums["weight"].sum(axis=0)
    mean = np.sum(sums["weight"] * sums["mean"], axis=0) / weight
    # Of weights that are not all 1, Σw² at a site is taken to be (Σw)²/n.
    between = sums["weight"] ** 2 / sums["people"] * (sums["mean"] - mean) ** 2
    squares = np.sum(sums["squares"] + between, axis=0)
    return {"people": people, "weight": weight, "mean": mean, "squares": squares}


def weights_of_everybody(own: Arrays) -> Arrays:
    """As `scores_of_everybody`, for weighted means by arm; products are packed matrices."""
    parts = own["weights"][..., :2], own["crossed"][..., :2], own["products"][..., [0, 2]]
    return {
        "people": own["people"][..., :2],
        "weight": own["weight"][..., :2],
        "mean": own["mean"][..., :2, 0],
        "squares": np.stack(parts, axis=-1),
    }


def of_weights(sums: Arrays) -> Estimates:
    """Difference of weighted means. Standard errors treat the propensities as known; with equal weights they
    are Welch's."""
    people, mean = sums["people"], sums["mean"]
    spread = sums["squares"][..., 2] / sums["weight"] ** 2
    variance = spread * people / np.maximum(people - 1.0, 1.0)
    return Estimates(mean[..., 1] - mean[..., 0], np.sqrt(variance.sum(axis=-1)))


def stacked_weights(sums: Arrays) -> Arrays:
    """As `stacked_scores`, for weighted means by arm."""
    weight = sums["weight"].sum(axis=0)
    mean = np.sum(sums["weight"] * sums["mean"], axis=0) / np.where(weight > 0.0, weight, 1.0)
    squares = _recentred(sums["squares"], sums["mean"] - mean).sum(axis=0)
    return {"people": sums["people"].sum(axis=0), "weight": weight, "mean": mean, "squares": squares}


def _recentred(squares: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Sums of squared weights, with powers 0, 1 and 2 of deviations that are all larger by a shift."""
    one, first, second = (squares[..., power] for power in range(3))
    moved = (one, first + shift * one, second + 2.0 * shift * first + shift**2 * one)
    return np.stack(moved, axis=-1)


def average(sites: Estimates, people: np.ndarray) -> Estimates:
    """The average over all sites' people, treating the sites' estimates as independent."""
    share = people / people.sum()
    return Estimates(share @ sites.estimate, np.sqrt(share**2 @ sites.error**2))


def numbers(found: Estimates, scale: float) -> dict[str, object]:
    """An estimate and its standard error in the outcome's units."""
    return {"estimate": float(scale * found.estimate), "standard_error": float(scale * found.error)}


def site_numbers(found: Estimates, scale: float) -> dict[str, object]:
    """As `numbers`, for every site."""
    return {"estimate": BySite(scale * found.estimate), "standard_error": BySite(scale * found.error)}


def with_interval(found: Estimates, scale: float) -> dict[str, object]:
    """As `numbers`, with the normal 95 % confidence interval."""
    margin = ndtri(1.0 - ALPHA / 2.0) * found.error
    ends = {"lower": scale * float(found.estimate - margin), "upper": scale * float(found.estimate + margin)}
    return {**numbers(found, scale), **ends}
