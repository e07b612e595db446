"""The coordinator's part F of the collapsed likelihood: evidence and slopes, draws of weights and shifts.

The Gaussian algebra is NumPy's (`maths/regression.py`). Only the maps from θ to the prior are differentiated
automatically; they are small and compile quickly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths.regression import (
    RegressionPosterior,
    RegressionPrior,
    coefficients,
    evidence_slopes,
    noise_size,
    posterior,
    with_combination,
    without_combination,
)
from unpooled.methods.fedci.model import Structure
from unpooled.protocol.batch import one_by_one
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays

if TYPE_CHECKING:
    from unpooled.methods.fedci.stages import Evidence

T = TypeVar("T")


class Posterior(NamedTuple):
    """The posterior of weights and shifts under one θ."""

    regression: RegressionPosterior
    log_prior: float
    """Of the hyperparameters."""
    propensity: Float[np.ndarray, " p"]
    """The last feature of the regression, as a combination of the features: the direction in which the
    treatment depends on the covariates."""

    @property
    def value(self) -> float:
        """−log p(y | θ) − log p(θ)."""
        return -self.regression.log_evidence - self.log_prior

    def weights(self, noise: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """β of the features [j, 2, p] and g [j, 2, m]: draws from standard normal numbers, or the mean."""
        beta, shift = coefficients(self.regression, noise)
        return beta[..., :-1] + beta[..., -1:] * self.propensity, shift


def posteriors(evidence: Evidence, free: Arrays, fixed: Arrays, statistics: Statistics) -> list[Posterior]:
    """The posterior under each θ of a batch."""
    structure, sums_of, found = evidence.structure, evidence.sums, []
    directions = np.asarray(fixed["propensity"])
    prior, log_prior, _ = prior_and_slopes(structure, free, fixed, structure.zero_slopes(len(directions)))
    each = zip(*map(_each, (free, statistics, prior)), directions, np.asarray(log_prior), strict=True)
    for own, told, before, direction, density in each:
        combination = _combination(direction, structure.width)
        sums = with_combination(sums_of(own, told), combination)
        found.append(Posterior(posterior(sums, before), float(density), combination))
    return found


def value_and_slopes(
    evidence: Evidence, free: Arrays, fixed: Arrays, statistics: Statistics
) -> tuple[np.ndarray, Arrays, Statistics]:
    """F and its gradients with respect to θ and the statistics, for a batch of θ."""
    fitted = posteriors(evidence, free, fixed, statistics)
    of_priors, direct, cotangents, sums_slopes = [], [], [], evidence.sums_slopes
    for one, own, told in zip(fitted, _each(free), _each(statistics), strict=True):
        of_sums, of_prior = evidence_slopes(one.regression)
        of_sums = without_combination(of_sums, one.propensity)
        of_own, of_told = sums_slopes(own, told, of_sums)
        of_priors.append(of_prior)
        direct.append(of_own)
        cotangents.append(jax.tree.map(np.negative, of_told))
    _, _, slopes = prior_and_slopes(evidence.structure, free, fixed, _stacked(of_priors))
    both = {name: -np.asarray(slope) for name, slope in slopes.items()}
    for name in direct[0]:
        both[name] = both[name] - np.stack([one[name] for one in direct])
    return np.array([one.value for one in fitted]), both, _stacked(cotangents)


def weights_and_shifts(
    evidence: Evidence, fitted: list[Posterior], rng: np.random.Generator | None, draws: int
) -> tuple[Float[np.ndarray, "b j 2 p"], Float[np.ndarray, "b j 2 m"]]:
    """β and g under each θ: `draws` draws, or their posterior mean if there is no generator.

    With a link, none is larger than sites answer to.
    """
    size = (draws, noise_size(fitted[0].regression.prior))
    found = [one.weights(None if rng is None else rng.standard_normal(size)) for one in fitted]
    beta, shift = (np.stack(part) for part in zip(*found, strict=True))
    if evidence.link is None:
        return beta, shift
    most = evidence.link.largest
    return np.clip(beta, -most, most), np.clip(shift, -most, most)


def principal_deviations(
    evidence: Evidence, fitted: list[Posterior], count: int
) -> Float[np.ndarray, "b k 2 p"]:
    """The `count` deviations of the weights from their mean that matter most to people's predictors.

    The variance of the predictors that further deviations have is shared between these, in proportion.
    """
    assert evidence.link is not None
    most = evidence.link.largest
    return np.stack([np.clip(_deviations(one, count), -most, most) for one in fitted])


def _deviations(fitted: Posterior, count: int) -> Float[np.ndarray, "k 2 p"]:
    size = noise_size(fitted.regression.prior)
    mean, _ = fitted.weights()
    root = fitted.weights(np.eye(size))[0] - mean
    gram = fitted.regression.sums.gram[..., :-1, :-1]
    products = np.einsum("jaf,abfg,kbg->jk", root, gram, root, optimize=True)
    values, vectors = np.linalg.eigh(0.5 * (products + products.T))
    values = np.maximum(values, 0.0)
    found = np.einsum("jk,jaf->kaf", vectors[:, ::-1][:, :count], root)
    share = np.sum(values[::-1][:count]) / max(float(np.sum(values)), 1e-300)
    padded = np.zeros(
        (count, *found.shape[1:]), np.float32
    )  # enough digits for a variance, and half the bytes
    padded[: len(found)] = found / np.sqrt(max(share, 1e-6))
    return padded


def log_prior_slopes(structure: Structure, free: Arrays, fixed: Arrays) -> Arrays:
    """The gradient of the log prior of each θ of a batch."""
    return prior_and_slopes(structure, free, fixed, structure.zero_slopes(len(fixed["noise"])))[2]


def prior_and_slopes(
    structure: Structure, free: Arrays, fixed: Arrays, slopes: RegressionPrior
) -> tuple[RegressionPrior, Array, Arrays]:
    """For each θ of a batch: the prior of weights and shifts, the log prior of θ, and ∂/∂θ of the log prior
    plus a function with the given slopes with respect to the prior of weights and shifts."""
    return one_by_one(prior_and_slopes_of, (free, fixed, slopes), structure, often=False)


def prior_and_slopes_of(
    leaves: tuple[Arrays, Arrays, RegressionPrior], structure: Structure
) -> tuple[RegressionPrior, Array, Arrays]:
    """What is compiled of `prior_and_slopes`, for one θ."""
    free, fixed, slopes = leaves
    (prior, log_prior), pull = jax.vjp(
        lambda free: (structure.prior(free), structure.log_prior(free, fixed)), free
    )
    (gradient,) = pull((slopes, 1.0))
    return prior, log_prior, gradient


def _combination(direction: np.ndarray, size: int) -> Float[np.ndarray, " p"]:
    """Weights of all features, from those of the covariates, which follow the intercept."""
    found = np.zeros(size)
    found[1 : 1 + len(direction)] = direction
    return found


def _each(batch: T) -> Iterator[T]:
    """One after the other of a batch, with arrays in one layout: the last digit of a sum may depend on the
    layout, and a resumed study must ask the same questions."""
    leaves, structure = jax.tree.flatten(batch)
    ordered = [np.require(leaf, requirements=["C", "A"]) for leaf in leaves]
    return (jax.tree.unflatten(structure, one) for one in zip(*ordered, strict=True))


def _stacked(several: list[T]) -> T:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *several)
