"""The collapsed likelihood, with everything Gaussian integrated out.

A site integrates its remainder process (S); the coordinator integrates weights and shifts (F). With limits,
features that rest on too few of a site's people are left out of its sums (`masks`).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

from unpooled.disclosure.effective_people import TINY, capped
from unpooled.maths.covariance import between_arms
from unpooled.maths.linear_algebra import pack, unpack, weighted_gram
from unpooled.maths.regression import (
    RegressionPosterior,
    RegressionSums,
    coefficients,
    posterior,
    with_combination,
)
from unpooled.methods.fedci.bounds import FIXED
from unpooled.methods.fedci.masks import counted, kept
from unpooled.methods.fedci.model import Kernel, Projection, Structure
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds, Objective


def in_use(rows: Rows, fixed: Arrays) -> Array:
    """1 for rows that are present and not in the held-out fold (−1: no fold is held out), else 0."""
    return rows.present * (rows.fold != fixed["fold"])


def arm_indicators(treatment: Array) -> Array:
    """One-hot encoding of the arm, [n, 2]."""
    return jnp.stack([1.0 - treatment, treatment], axis=1)


def plain_columns(rows: Rows) -> int:
    """The number of features that are the columns [1, x] themselves."""
    return 1 + rows.covariates.shape[1]


class Evidence(Objective):
    """The negative log posterior of the hyperparameters: −log p(y | θ) − log p(θ)."""

    structure: eqx.AbstractVar[Structure]

    @abstractmethod
    def sums(self, parameters: Parameters, statistics: Statistics) -> RegressionSums:
        """The sums of the Gaussian regression under these hyperparameters."""

    @abstractmethod
    def kept(self, free: Arrays, rows: Rows, weights: Array) -> Float[Array, "2 p"]:
        """The factors by which features enter the site's sums over the rows with weight 1."""

    def bounds(self) -> Bounds:
        return {**FIXED, **self.structure.bounds()}

    def posterior(self, parameters: Parameters, statistics: Statistics) -> RegressionPosterior:
        """The posterior of weights and shifts given the hyperparameters."""
        sums = with_combination(self.sums(parameters, statistics), self._propensity(parameters))
        return posterior(sums, self.structure.prior(parameters.free))

    def weights(self, parameters: Parameters, whitened: Array) -> tuple[Float[Array, "2 p"], Array]:
        """β of the features and g, for one draw of the whitened weights."""
        beta, shift = coefficients(self.structure.prior(parameters.free), whitened)
        return beta[:, :-1] + beta[:, -1:] * self._propensity(parameters), shift

    def _propensity(self, parameters: Parameters) -> Float[Array, " p"]:
        """The direction in which the treatment depends on the covariates, as weights of the features."""
        direction = parameters.fixed["propensity"]
        size = self.structure.feature_factors(parameters.free).shape[0]
        return jnp.zeros(size).at[1 : 1 + len(direction)].set(direction)

    def value(self, parameters: Parameters, statistics: Statistics) -> Array:
        evidence = self.posterior(parameters, statistics).log_evidence
        return -evidence - self.structure.log_prior(parameters.free, parameters.fixed)


class FeatureEvidence(Evidence):
    """Evidence without a remainder: R is the noise alone, so a Gram matrix per arm suffices."""

    structure: Projection
    reveals: ClassVar[str] = (
        "per arm: Gram matrix of the features summed over people, their products with the outcome"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        features = self.structure.features(parameters.free, rows.covariates)
        weights, factor = self._masks(features, rows, in_use(rows, parameters.fixed))
        gram = weighted_gram(weights, features)
        gram = gram * factor[:, :, None] * factor[:, None, :]
        moment = (weights * rows.outcome) @ features * factor
        square = weights @ rows.outcome**2
        return Statistics(
            {"gram": pack(gram), "moment": moment, "square": square},
            {"gram": gram[:, 0], "moment": moment[:, 0]},
        )

    def kept(self, free: Arrays, rows: Rows, weights: Array) -> Array:
        return self._masks(self.structure.features(free, rows.covariates), rows, weights)[1]

    def _masks(self, features: Array, rows: Rows, weights: Array) -> tuple[Array, Array]:
        """How much each person counts, by arm, and the factors of the features."""
        plain, everybody = plain_columns(rows), arm_indicators(rows.treatment).T * weights
        if not rows.least:
            return everybody, jnp.ones((2, features.shape[1]))
        arms = counted(features, everybody, rows.least, plain)
        return arms, kept(arms[:, None] * features.T**2, rows.least, plain)

    def sums(self, parameters: Parameters, statistics: Statistics) -> RegressionSums:
        noise = parameters.free["noise"]
        precision = jnp.exp(-2.0 * noise)
        total, per_site = statistics.summed, statistics.per_site
        gram = precision[:, None, None] * unpack(total["gram"])
        counts = unpack(total["gram"])[:, 0, 0]
        return RegressionSums(
            gram=jnp.eye(2)[:, :, None, None] * gram[:, None],
            moment=precision[:, None] * total["moment"],
            square=precision @ total["square"],
            log_determinant=2.0 * counts @ noise,
            site_gram=jnp.eye(2)[None, :, :, None] * (precision[:, None] * per_site["gram"])[:, :, None],
            site_moment=precision * per_site["moment"],
        )


class KernelEvidence(Evidence):
    """Evidence with R = Ψ[w, w']·remainder + noise within a site.

    With `diagonal`, only the diagonal of R is used, and the cost is linear in the rows.
    """

    structure: Kernel
    diagonal: bool = eqx.field(static=True)
    reveals: ClassVar[str] = "HᵀK⁻¹H, HᵀK⁻¹y, yᵀK⁻¹y and log|K| of the site's features and outcomes"

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        free = parameters.free
        weights = in_use(rows, parameters.fixed)
        design = self.design(free, rows.covariates, rows.treatment) * weights[:, None]
        stacked = jnp.concatenate([design, (rows.outcome * weights)[:, None]], axis=1)
        whitened, log_determinant = self.whiten(free, rows, weights, stacked)
        factor = self._masks(design, whitened[:, :-1], rows)
        # Whitened, a person's outcome may stand out although it did not before.
        outcome = whitened[:, -1] * _cap(whitened[:, -1], rows.least)
        whitened = whitened[:, :-1] * factor.reshape(-1)
        gram, moment = self._gram(whitened), outcome @ whitened
        size = gram.shape[0] // 2
        site_gram = gram.reshape(2, size, 2, size)[:, 0]
        return Statistics(
            {
                "gram": pack(gram),
                "moment": moment,
                "square": outcome @ outcome,
                "log": log_determinant,
            },
            {"gram": site_gram, "moment": moment.reshape(2, size)[:, 0]},
        )

    def _gram(self, whitened: Float[Array, "n q"]) -> Float[Array, "q q"]:
        """HᵀR⁻¹H; if R is diagonal, there are no products of different arms."""
        if not self.diagonal:
            return whitened.T @ whitened
        control, treated = jnp.split(whitened, 2, axis=1)
        return jsl.block_diag(control.T @ control, treated.T @ treated)

    def kept(self, free: Arrays, rows: Rows, weights: Array) -> Array:
        design = self.design(free, rows.covariates, rows.treatment) * weights[:, None]
        return self._masks(design, self.whiten(free, rows, weights, design)[0], rows)

    def _masks(self, design: Array, whitened: Array, rows: Rows) -> Array:
        """The factors of the features, from people's contributions both before and after whitening.

        With the exact remainder, a whitened row is a person's deviation from what the rows before it predict.
        """
        if not rows.least:
            return jnp.ones((2, design.shape[1] // 2))
        before, after = (
            kept((columns.T**2).reshape(2, -1, len(columns)), rows.least, plain)
            for columns, plain in ((design, plain_columns(rows)), (whitened, 0))
        )
        return jnp.minimum(before, after)

    def design(self, free: Arrays, covariates: Array, treatment: Array) -> Array:
        """H: the features in the columns of the person's arm, zeros in those of the other."""
        features = self.structure.features(free, covariates)
        return (arm_indicators(treatment)[:, :, None] * features[:, None, :]).reshape(len(treatment), -1)

    def observed_covariance(self, free: Arrays, rows: Rows, weights: Array) -> Array:
        """R: K_obs of Lemma 2 minus the part due to shared features; rows not in use are uncorrelated."""
        between = between_arms(self.structure.arm_covariance(free), rows.treatment, rows.treatment)
        local = between * self.structure.remainder(free, rows.covariates, rows.covariates)
        diagonal = jnp.where(weights > 0, self.noise(free, rows.treatment), 1.0)
        return local * weights[:, None] * weights[None, :] + jnp.diag(diagonal)

    def noise(self, free: Arrays, treatment: Array) -> Array:
        """σ²_w plus a jitter that keeps K_obs positive definite as the noise approaches zero."""
        return arm_indicators(treatment) @ jnp.exp(2.0 * free["noise"]) + 1e-8

    def whiten(self, free: Arrays, rows: Rows, weights: Array, columns: Array) -> tuple[Array, Array]:
        """R^{−½}·columns and log|R|."""
        if self.diagonal:
            scale = arm_indicators(rows.treatment) @ jnp.diagonal(self.structure.arm_covariance(free))
            variance = self.noise(free, rows.treatment) + scale * self.structure.remainder_diagonal(
                free, rows.covariates
            )
            variance = jnp.where(weights > 0, variance, 1.0)
            return columns / jnp.sqrt(variance)[:, None], jnp.sum(jnp.log(variance))
        root = jnp.linalg.cholesky(self.observed_covariance(free, rows, weights))
        whitened = jsl.solve_triangular(root, columns, lower=True)
        return whitened, 2.0 * jnp.sum(jnp.log(jnp.diagonal(root)))

    def sums(self, parameters: Parameters, statistics: Statistics) -> RegressionSums:
        total, per_site = statistics.summed, statistics.per_site
        gram = unpack(total["gram"])
        size = gram.shape[0] // 2
        return RegressionSums(
            gram=gram.reshape(2, size, 2, size).transpose(0, 2, 1, 3),
            moment=total["moment"].reshape(2, size),
            square=total["square"],
            log_determinant=total["log"],
            site_gram=per_site["gram"],
            site_moment=per_site["moment"],
        )


def _cap(values: Array, least: float) -> Array:
    """The factors at which the squares of the values rest on more than `least` people."""
    if not least:
        return jnp.ones_like(values)
    sizes = jnp.abs(values)
    return jax.lax.stop_gradient(capped(sizes, least) / jnp.where(sizes > TINY, sizes, 1.0))
