"""Mean outcomes by group at the coordinator: estimates, several draws of the folds combined, normal draws.

Estimates are [..., j], where j goes over groups and, for each, over the average effect and the mean outcome
under control. The effect over everybody is the first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.maths.linear_algebra import unpack
from unpooled.maths.normal import TRIED, independent_normals
from unpooled.maths.streams import stream
from unpooled.methods.aipw.fold_draws import Combined, combined, median
from unpooled.methods.aipw.model import Estimates
from unpooled.protocol.records import Arrays, AverageOutcomes

SEARCHED = 8 * TRIED
"""Size of the search for orders of the draws of all effects and means but the first."""


class GroupEstimates(NamedTuple):
    """Estimates [..., j] with their covariances, and the number of people [..., g] for whom each stands."""

    estimate: np.ndarray
    covariance: np.ndarray
    people: np.ndarray

    @property
    def error(self) -> np.ndarray:
        return np.sqrt(np.diagonal(self.covariance, axis1=-2, axis2=-1))


def of_scores_by_group(own: Arrays, products: str = "products") -> GroupEstimates:
    """From doubly robust scores; with "noise" for products, in these very people (see `of_residuals`)."""
    estimate = own["mean"].reshape(*own["mean"].shape[:-2], -1)
    people, weight = (np.repeat(own[name], 2, axis=-1) for name in ("people", "weight"))
    return GroupEstimates(estimate, _covariance(own[products], people, weight), own["weight"])


def of_weights_by_group(own: Arrays) -> GroupEstimates:
    """From weighted means by arm. A site with fewer than two people in an arm of a group has none of it."""
    by_arm = _covariance(own["products"], own["people"], own["weight"])
    shape = own["weight"].shape[:-1]
    mean, people = (own[name].reshape(*shape, -1, 2) for name in ("mean", "people"))
    compare = np.kron(np.eye(mean.shape[-2]), [[-1.0, 1.0], [1.0, 0.0]])
    estimate = mean.reshape(*shape, -1) @ compare.T
    known = np.all(people >= 2.0, axis=-1)
    return GroupEstimates(estimate, compare @ by_arm @ compare.T, np.where(known, own["size"], 0.0))


def _covariance(products: np.ndarray, people: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Products of deviations Σuuᵀ/ΣdΣd, with n/(n − 1) in each variance."""
    filled = np.where(weight > 0.0, weight, 1.0)
    size = np.where(weight > 0.0, np.sqrt(people / np.maximum(people - 1.0, 1.0)) / filled, 0.0)
    return np.asarray(unpack(products)) * size[..., :, None] * size[..., None, :]


class GroupMeans(NamedTuple):
    """Estimates of every site [site, j] over the draws of the folds, and how they vary together."""

    combined: Combined
    weight: np.ndarray
    """[site, group]: number of people."""
    own_root: np.ndarray
    """[site, j, j]: root L of the correlation LLᵀ of a site's estimates."""
    common_root: np.ndarray
    """[j, j]: the same of what sites have in common."""


def over_fold_draws(each: GroupEstimates) -> GroupMeans:
    """Combine estimates [draw, site, j]: each of them as `combined` does it, so that the average effect does
    not depend on the others. Correlations are those of the mean over the draws of Σ + (m − median)(…)ᵀ."""
    weight = each.people.mean(axis=0)
    found = combined(Estimates(each.estimate, each.error), np.repeat(weight, 2, axis=-1))
    apart = each.estimate - found.sites.estimate
    shared = np.einsum("rsj,sj->rj", apart, found.share)
    own = np.mean(each.covariance + apart[..., :, None] * apart[..., None, :], axis=0)
    common = np.mean(shared[..., :, None] * shared[..., None, :], axis=0)
    return GroupMeans(found, weight, correlation_root(own), correlation_root(common))


def median_by_site(each: GroupEstimates) -> GroupEstimates:
    """Estimates [draw, site, j] of each site by itself: the medians, with correlations as above."""
    found = median(Estimates(each.estimate, each.error))
    apart = each.estimate - found.estimate
    mean = np.mean(each.covariance + apart[..., :, None] * apart[..., None, :], axis=0)
    root = found.error[..., None] * correlation_root(mean)
    return GroupEstimates(found.estimate, root @ np.swapaxes(root, -1, -2), each.people.mean(axis=0))


def of_everybody(found: GroupMeans) -> Combined:
    """The average effect over everybody."""
    sites, overall, common, share = found.combined
    first = [Estimates(one.estimate[..., 0], one.error[..., 0]) for one in (sites, overall)]
    return Combined(first[0], first[1], common[0], share[:, 0])


def correlation_root(covariance: np.ndarray) -> np.ndarray:
    """Lower triangular L [..., j, j] with LLᵀ the correlation; without variance, that of independence.

    Limits of a site may have changed products so that no distribution has them all: eigenvalues below 0 are
    then set to 0.
    """
    sd = np.sqrt(np.maximum(np.diagonal(covariance, axis1=-2, axis2=-1), 0.0))
    scale = np.where(sd > 0.0, 1.0 / np.where(sd > 0.0, sd, 1.0), 0.0)
    flat = np.where(sd > 0.0, 0.0, 1.0)[..., None] * np.eye(sd.shape[-1])
    values, vectors = np.linalg.eigh(covariance * scale[..., :, None] * scale[..., None, :] + flat)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    triangle = np.linalg.qr(np.swapaxes(root, -1, -2), mode="r")
    lower = np.swapaxes(triangle, -1, -2)
    lower = lower * np.where(np.diagonal(lower, axis1=-2, axis2=-1) < 0.0, -1.0, 1.0)[..., None, :]
    return lower / np.linalg.norm(lower, axis=-1, keepdims=True)


def outcome_draws(found: GroupMeans, count: int, seed: int) -> np.ndarray:
    """Normal draws [K, site, group, arm] of mean outcomes.

    The sample moments are exact by site and nearly so over all sites; with many sites or groups for so few
    draws, by site only or not at all. Sums over sites are close to normal, as in `independent_normals`.
    """
    estimate, error = found.combined.sites
    common = found.combined.common
    own = np.sqrt(np.maximum(error**2 - common, 0.0))
    share = found.combined.share
    sizes = np.concatenate([np.sqrt(common)[None], share * own])
    normals = place_normals(count, sizes, seed)
    roots = np.concatenate([found.common_root[None], found.own_root])
    drawn = np.einsum("ksj,sij->ksi", normals, roots)
    values = estimate + np.sqrt(common) * drawn[:, :1] + own * drawn[:, 1:]
    effect, control = np.moveaxis(values.reshape(*values.shape[:2], -1, 2), -1, 0)
    return np.stack([control, control + effect], axis=-1)


def place_normals(count: int, sizes: np.ndarray, seed: int) -> np.ndarray:
    """Independent standard normals [K, place, j] whose sums over places, weighted by `sizes`, are normal."""
    places, means = sizes.shape
    tried, found = min(TRIED, SEARCHED // sizes.size), np.zeros((count, places, means))
    for number, size in enumerate(sizes.T):
        rng = stream(seed, "site effects", *((number,) if number else ()))
        used = size > 0.0
        drawn = independent_normals(count, size[used], rng, tried=tried if number else TRIED)
        found[:, used, number] = drawn / size[used]
        found[:, ~used, number] = independent_normals(count, np.ones(np.sum(~used)), rng, tried=1)
    first, others = found[..., :1], found[..., 1:]
    if 2 * sizes.size < count:
        flat = _uncorrelated(first.reshape(count, -1), others.reshape(count, -1))
        return np.concatenate([first, flat.reshape(others.shape)], axis=2)
    if means >= count:
        return found
    by_place = _uncorrelated(*(np.moveaxis(part, 1, 0) for part in (first, others)))
    return np.concatenate([first, np.moveaxis(by_place, 0, 1)], axis=2)


def _uncorrelated(first: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The other columns [*, K, j], with variance 1 and without correlations with each other and the first."""
    basis = np.linalg.qr(first)[0]
    basis, triangle = np.linalg.qr(others - basis @ (np.swapaxes(basis, -1, -2) @ others))
    sign = np.where(np.diagonal(triangle, axis1=-2, axis2=-1) < 0.0, -1.0, 1.0)
    return np.sqrt(others.shape[-2]) * basis * sign[..., None, :]


def average_outcomes(
    groups: tuple[str, ...], sample: GroupMeans, population: GroupMeans, count: int, seed: int
) -> AverageOutcomes:
    """The draws over the people of the study, and over their population."""
    both = [outcome_draws(one, count, seed) for one in (sample, population)]
    return AverageOutcomes(groups, both[0], both[1], population.weight)
