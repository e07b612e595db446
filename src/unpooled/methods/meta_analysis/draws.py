"""Draws of the mean outcomes of every site and group, given the estimates of all sites.

The effect in a group is pooled over sites. The mean outcome under control is each site's own, moved as far as
its estimate goes with that of the effect: nothing is assumed of how it differs between sites.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.maths.meta_analysis import SMALLEST_ERROR, heterogeneity, pool, shrunken
from unpooled.methods.aipw.group_means import GroupEstimates, correlation_root, place_normals


class PooledEffects(NamedTuple):
    """The pooled effect μ of each group, and each site's effect given it: constant + slope·μ, with sd."""

    mean: np.ndarray
    covariance: np.ndarray
    constant: np.ndarray
    slope: np.ndarray
    sd: np.ndarray


def pooled_effects(sites: GroupEstimates, known: np.ndarray, *, random: bool) -> PooledEffects:
    """Pool each group by itself, over the sites that know it [site, group].

    Between groups, the estimates of a site go together as their scores do; with random effects, what sets a
    site apart is taken to be the same in all groups.
    """
    shape = known.shape
    effect, error = sites.estimate[:, ::2], sites.error[:, ::2]
    constant, slope, sd, weights = (np.zeros(shape) for _ in range(4))
    mean, tau = np.zeros(shape[1]), np.zeros(shape[1])
    for group in np.flatnonzero(known.any(axis=0)):
        here = known[:, group]
        own = effect[here, group], error[here, group]
        spread = heterogeneity(*own).tau_squared if random else 0.0
        pooled, given = pool(*own, spread), shrunken(*own, spread)
        mean[group], tau[group], weights[here, group] = pooled.estimate, np.sqrt(spread), pooled.weights
        constant[here, group], slope[here, group], sd[here, group] = given
    between = sites.covariance[:, ::2, ::2] + tau[:, None] * tau
    covariance = np.einsum("sg,sh,sgh->gh", weights, weights, between)
    return PooledEffects(mean, covariance, constant, slope, sd)


def outcome_draws(
    sites: GroupEstimates, *, random: bool, count: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws [K, site, group, arm], and the number of people [site, group] for whom each stands.

    μ is normal here also with random effects: these are the effects at these sites, for which intervals by
    Hartung and Knapp, which are about a population of sites, would be much too wide if sites are few.
    """
    effect, control = sites.estimate[:, ::2], sites.estimate[:, 1::2]
    known = (sites.people > 0.0) & (sites.error[:, ::2] > SMALLEST_ERROR)
    people = np.where(known, sites.people, 0.0)
    found = pooled_effects(sites, known, random=random)
    # What is left of the mean under control when the effect is known.
    variance = np.diagonal(sites.covariance, axis1=1, axis2=2)[:, ::2]
    together = np.diagonal(sites.covariance, offset=1, axis1=1, axis2=2)[:, ::2]
    with_effect = together / np.where(known, variance, 1.0)
    change = np.broadcast_to(np.eye(2 * known.shape[1]), sites.covariance.shape).copy()
    place = np.arange(known.shape[1])
    change[:, 2 * place + 1, 2 * place] = -with_effect
    left = change @ sites.covariance @ np.swapaxes(change, 1, 2)
    rest = np.sqrt(np.maximum(np.diagonal(left, axis1=1, axis2=2)[:, 1::2], 0.0))
    # `ate` averages over sites: there μ enters with the average slope, a site with its share of people.
    share = people / np.maximum(people.sum(axis=0), 1e-300)
    error = np.sqrt(np.diagonal(found.covariance))
    sizes = np.zeros((1 + len(known), 2 * known.shape[1]))
    sizes[0, ::2] = np.sum(share * found.slope, axis=0) * error
    sizes[1:, ::2], sizes[1:, 1::2] = share * found.sd, share * rest
    common = np.zeros(change.shape[1:])
    common[::2, ::2] = found.covariance
    roots = np.concatenate([correlation_root(common)[None], correlation_root(left)])
    drawn = np.einsum("ksj,sij->ksi", place_normals(count, sizes, seed), roots)
    mean = found.mean + error * drawn[:, :1, ::2]
    effects = found.constant + found.slope * mean + found.sd * drawn[:, 1:, ::2]
    controls = control + with_effect * (effects - effect) + rest * drawn[:, 1:, 1::2]
    return np.stack([controls, controls + effects], axis=-1), people
