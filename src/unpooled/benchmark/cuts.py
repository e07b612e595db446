"""One table of people as several sites, cut four ways by covariates and treatment, never by outcomes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import root_scalar
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

LEAST = 20
"""Fewest people of an arm at a site: by its limits a site refuses fewer than five in each of four folds."""

Cut = Callable[[np.ndarray, np.ndarray, int, np.random.Generator, int], np.ndarray]
"""(covariates, treatment, sites, rng, fewest people of an arm at a site) → each person's site, from 0."""


def random(
    covariates: np.ndarray, treatment: np.ndarray, sites: int, rng: np.random.Generator, least: int = LEAST
) -> np.ndarray:
    """Sites of one size, alike but for chance."""
    people = len(treatment)
    return _filled(rng.permutation(people) % sites, rng.random((people, sites)), treatment, least)


def cluster(
    covariates: np.ndarray, treatment: np.ndarray, sites: int, rng: np.random.Generator, least: int = LEAST
) -> np.ndarray:
    """Sites whose people resemble each other: clusters of the standardised covariates.

    Beyond three standard deviations nobody is farther away, so that a rare value makes no site of its own.
    """
    scaled = np.clip(StandardScaler().fit_transform(covariates), -3.0, 3.0)
    distance = KMeans(sites, random_state=int(rng.integers(2**31))).fit_transform(scaled)
    return _filled(distance.argmin(axis=1), distance, treatment, least)


def propensity(
    covariates: np.ndarray, treatment: np.ndarray, sites: int, rng: np.random.Generator, least: int = LEAST
) -> np.ndarray:
    """Sites that treat rarely to often: quantiles of a logistic regression's score, so chance has no part."""
    scaled = StandardScaler().fit_transform(covariates)
    score = LogisticRegression(max_iter=1000).fit(scaled, treatment).decision_function(scaled)
    place = (np.argsort(np.argsort(score)) + 0.5) * sites / len(score)
    middles = np.arange(sites) + 0.5
    return _filled(place.astype(int), np.abs(place[:, None] - middles), treatment, least)


def unequal(
    covariates: np.ndarray, treatment: np.ndarray, sites: int, rng: np.random.Generator, least: int = LEAST
) -> np.ndarray:
    """Sites alike but for their sizes, which grow geometrically; site 0 is the smallest that limits allow."""
    people = len(treatment)
    sizes = _growing(2 * least, people, sites)
    site = rng.permutation(np.repeat(np.arange(sites), sizes))
    return _filled(site, rng.random((people, sites)), treatment, least)


CUTS: dict[str, Cut] = {
    "random": random,
    "cluster": cluster,
    "propensity": propensity,
    "unequal": unequal,
}


def _growing(smallest: int, total: int, sites: int) -> np.ndarray:
    """Sizes in a constant ratio, from the smallest up; they add up to the total."""
    powers = np.arange(sites)
    found = root_scalar(lambda ratio: smallest * np.sum(ratio**powers) - total, bracket=(1.0, float(total)))
    sizes = np.floor(smallest * found.root**powers).astype(int)
    sizes[-1] += total - sizes.sum()
    return sizes


def _filled(site: np.ndarray, distance: np.ndarray, treatment: np.ndarray, least: int) -> np.ndarray:
    """Move people to sites that hold too few of an arm, the nearest first; nobody else moves.

    Each site in turn is promised `least` people of each arm, or an even share where there are too few: its
    own, then those of other sites by `distance` [people, sites], but none that is already promised.
    """
    filled, sites = site.copy(), distance.shape[1]
    for arm in (0, 1):
        free = treatment == arm
        promise = min(least, int(free.sum()) // sites)
        for number in range(sites):
            promised = np.lexsort((distance[:, number], site != number, ~free))[:promise]
            filled[promised], free[promised] = number, False
    return filled
