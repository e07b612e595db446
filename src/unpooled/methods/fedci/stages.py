"""The collapsed likelihood, with everything Gaussian integrated out.

A site integrates its remainder process (S); the coordinator integrates weights and shifts (F, in
`posterior`). With limits, features that rest on too few of a site's people are left out of its sums
(`masks`).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float

from unpooled.disclosure.effective_people import TINY, capped
from unpooled.maths.blocks import sum_over_blocks
from unpooled.maths.covariance import between_arms
from unpooled.maths.linear_algebra import pack, packed_slopes, unpack, weighted_gram
from unpooled.maths.regression import RegressionSums
from unpooled.methods.fedci.bounds import FIXED, WEIGHTS
from unpooled.methods.fedci.masks import counted, kept
from unpooled.methods.fedci.model import Kernel, Projection, Structure
from unpooled.methods.fedci.posterior import posteriors, value_and_slopes
from unpooled.methods.fedci.working_response import ABOUT, observed, shared_noise
from unpooled.models.link import Link, Observed
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds, Objective


def in_use(rows: Rows, fixed: Arrays) -> Array:
    """The sampling weights, or else 1, of rows that are not in the held-out fold (−1: no fold is held out);
    0 for others."""
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
    link: eqx.AbstractVar[Link | None]
    """Of outcomes that are not continuous, which are replaced by their working responses."""
    at_sites: ClassVar[tuple[str, ...]]
    """The hyperparameters on which the statistics depend; the others are the coordinator's alone."""

    @abstractmethod
    def sums(self, free: Arrays, statistics: Statistics) -> RegressionSums:
        """The sums of the Gaussian regression under these hyperparameters."""

    @abstractmethod
    def sums_slopes(
        self, free: Arrays, statistics: Statistics, slopes: RegressionSums
    ) -> tuple[Arrays, Statistics]:
        """Slopes with respect to θ and the statistics, from slopes with respect to `sums`."""

    @abstractmethod
    def kept(self, free: Arrays, rows: Rows, weights: Array) -> Float[Array, "2 p"]:
        """The factors by which features enter the site's sums over the rows with weight 1."""

    @abstractmethod
    def remainder_covariance(self, free: Arrays, rows: Rows) -> Float[Array, " n"] | Float[Array, "n n"]:
        """The prior covariance of everybody's remainder in their own arm, or its diagonal."""

    def noise(self, free: Arrays, treatment: Array) -> Array:
        """The variance of the noise, plus a jitter that keeps K_obs positive definite as it approaches zero;
        with a link, at the mean outcome."""
        if self.link is not None:
            return jnp.full_like(treatment, self.link.noise**2)
        return arm_indicators(treatment) @ jnp.exp(2.0 * free["noise"]) + 1e-8

    def observed(self, free: Arrays, about: Arrays | None, rows: Rows, weights: Array) -> Observed:
        """The outcomes with the variance of their noise; with a link, expanded about a point."""
        if self.link is None:
            return Observed(rows.outcome, self.noise(free, rows.treatment))
        assert about is not None
        return observed(self, about, rows, weights)

    def of_site(self, gram: Array, moment: Array) -> Arrays:
        """The sums of the intercept, by which a site's shift is found; nothing if there are no shifts."""
        return {"gram": gram, "moment": moment} if self.structure.shifts else {}

    def bounds(self) -> Bounds:
        about = (
            {}
            if self.link is None
            else {**ABOUT, **dict.fromkeys(("beta", "deviations"), self.weight_bounds()["beta"])}
        )
        return {**FIXED, **self.structure.bounds(), **about}

    def weight_bounds(self) -> Bounds:
        """Bounds of draws of the weights and of the site's shift."""
        if self.link is None:
            return WEIGHTS
        most = self.link.largest
        return {**WEIGHTS, "beta": (-most, most), "site_shift": (-most, most)}

    def value(self, parameters: Parameters, statistics: Statistics) -> Array:
        """−log p(y | θ) − log p(θ), computed by NumPy: it cannot be traced."""
        batch = jax.tree.map(lambda leaf: np.asarray(leaf)[None], (parameters, statistics))
        (fitted,) = posteriors(self, batch[0].free, batch[0].fixed, batch[1])
        return jnp.asarray(fitted.value)

    def value_and_slopes(
        self, free: Arrays, fixed: Arrays, statistics: Statistics
    ) -> tuple[Array | np.ndarray, Arrays, Statistics]:
        return value_and_slopes(self, free, fixed, statistics)


class FeatureEvidence(Evidence):
    """Evidence without a remainder: R is the noise alone, so a Gram matrix per arm suffices."""

    structure: Projection
    link: Link | None
    at_sites: ClassVar[tuple[str, ...]] = ("direction", "length")
    reveals: ClassVar[str] = (
        "for sums over sites, per arm: Gram matrix of the features, their products with the outcome; at this "
        "site, where sites have shifts: sums of the features and of the outcome by arm"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        told, precision = self._told(parameters, rows)
        weights, factor = self._masks(parameters.free, rows, in_use(rows, parameters.fixed) * precision)

        def of_block(shared: tuple[Arrays, Array], block: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            (free, basis), (covariates, outcome, weights) = shared, block
            features = self.structure.features(free, covariates, basis)
            return weighted_gram(weights.T, features), (weights.T * outcome) @ features

        by_row = rows.covariates, told, weights.T
        shared = parameters.free, self.structure.basis(parameters.free)
        gram, moment = sum_over_blocks(of_block, shared, by_row)
        gram, moment = gram * factor[:, :, None] * factor[:, None, :], moment * factor
        square = weights @ told**2
        return Statistics(
            {"gram": pack(gram), "moment": moment, "square": square},
            self.of_site(gram[:, 0], moment[:, 0]),
        )

    def _told(self, parameters: Parameters, rows: Rows) -> tuple[Array, Array]:
        """The outcomes, and the precision of their noise if that differs between people."""
        if self.link is None:
            return rows.outcome, jnp.ones_like(rows.outcome)
        use = in_use(rows, parameters.fixed)
        outcome, variance = self.observed(parameters.free, parameters.fixed["about"], rows, use)
        return outcome * _cap(outcome * jnp.sqrt(use / variance), rows.least), 1.0 / variance

    def kept(self, free: Arrays, rows: Rows, weights: Array) -> Array:
        return self._masks(free, rows, weights)[1]

    def remainder_covariance(self, free: Arrays, rows: Rows) -> Array:
        return jnp.zeros_like(rows.treatment)

    def _masks(self, free: Arrays, rows: Rows, weights: Array) -> tuple[Array, Array]:
        """How much each person counts, by arm, and the factors of the features."""
        # With a link, sums of the columns themselves depend on parameters, too.
        plain = plain_columns(rows) if self.link is None else 0
        everybody = arm_indicators(rows.treatment).T * weights
        if not rows.least:
            return everybody, jnp.ones((2, self.structure.width))
        features = jax.lax.stop_gradient(self.structure.features(free, rows.covariates))
        arms = counted(features, everybody, rows.least, plain)
        return arms, kept(arms[:, None] * features.T**2, rows.least, plain)

    def sums(self, free: Arrays, statistics: Statistics) -> RegressionSums:
        noise, total, per_site = self._log_sd(free), statistics.summed, statistics.per_site
        precision, gram, arms = np.exp(-2.0 * noise), unpack(total["gram"]), np.arange(2)
        both = np.zeros((2, *gram.shape))
        both[arms, arms] = precision[:, None, None] * gram
        site_gram = np.zeros((len(per_site["gram"]) if per_site else 0, 2, *gram.shape[:2]))
        if per_site:
            site_gram[:, arms, arms] = precision[:, None] * per_site["gram"]
        return RegressionSums(
            gram=both,
            moment=precision[:, None] * total["moment"],
            square=precision @ total["square"],
            log_determinant=2.0 * gram[:, 0, 0] @ noise,
            site_gram=site_gram,
            site_moment=precision * per_site["moment"] if per_site else np.zeros((0, 2)),
        )

    def sums_slopes(
        self, free: Arrays, statistics: Statistics, slopes: RegressionSums
    ) -> tuple[Arrays, Statistics]:
        noise, total, per_site = self._log_sd(free), statistics.summed, statistics.per_site
        precision, gram, arms = np.exp(-2.0 * noise), unpack(total["gram"]), np.arange(2)
        own = slopes.gram[arms, arms]
        # Everything but the log determinant is proportional to the precision, whose slope is −2·precision.
        weighted = np.sum(own * gram, axis=(1, 2)) + np.sum(slopes.moment * total["moment"], axis=1)
        weighted += slopes.square * total["square"]
        by_site: Arrays = {}
        if per_site:
            at_sites = slopes.site_gram[:, arms, arms]
            weighted += np.sum(slopes.site_moment * per_site["moment"], axis=0)
            weighted += np.einsum("saf,saf->a", at_sites, per_site["gram"])
            by_site = {"gram": precision[:, None] * at_sites, "moment": precision * slopes.site_moment}
        counts = 2.0 * slopes.log_determinant
        of_gram = packed_slopes(precision[:, None, None] * own)
        of_gram[:, 0] += counts * noise
        summed = {
            "gram": of_gram,
            "moment": precision[:, None] * slopes.moment,
            "square": precision * slopes.square,
        }
        if self.link is not None:
            return {}, Statistics(summed, by_site)
        return {"noise": counts * gram[:, 0, 0] - 2.0 * precision * weighted}, Statistics(summed, by_site)

    def _log_sd(self, free: Arrays) -> np.ndarray:
        """Of the noise; with a link, the noise is in the sums already."""
        return np.zeros(2) if self.link is not None else np.asarray(free["noise"])


class KernelEvidence(Evidence):
    """Evidence with R = Ψ[w, w']·remainder + noise within a site.

    With `diagonal`, only the diagonal of R is used, and the cost is linear in the rows.
    """

    structure: Kernel
    link: Link | None
    diagonal: bool = eqx.field(static=True)
    at_sites: ClassVar[tuple[str, ...]] = ("arms", "length", "noise")
    reveals: ClassVar[str] = (
        "for sums over sites: HᵀK⁻¹H, HᵀK⁻¹y, yᵀK⁻¹y and log|K| of the site's features H and outcomes y; at "
        "this site, where sites have shifts: the rows of HᵀK⁻¹H and HᵀK⁻¹y that belong to the intercepts"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        free = parameters.free
        weights = in_use(rows, parameters.fixed)
        seen = self.observed(free, parameters.fixed.get("about"), rows, weights)
        if self.diagonal:
            return self._by_arm(free, rows, weights, seen)
        design = self.design(free, rows.covariates, rows.treatment)
        stacked = jnp.concatenate([design, seen.outcome[:, None]], axis=1)
        whitened, log_determinant = self.whiten(free, rows, weights, stacked, seen.variance)
        log_determinant = log_determinant - self._of_noise(seen, weights)
        factor = self._masks(design * jnp.sqrt(weights)[:, None], whitened[:, :-1], rows)
        # Whitened, a person's outcome may stand out although it did not before.
        outcome = whitened[:, -1] * _cap(whitened[:, -1], rows.least)
        whitened = whitened[:, :-1] * factor.reshape(-1)
        gram, moment = whitened.T @ whitened, outcome @ whitened
        size = gram.shape[0] // 2
        return Statistics(
            {
                "gram": pack(gram),
                "moment": moment,
                "square": outcome @ outcome,
                "log": log_determinant,
            },
            self.of_site(gram.reshape(2, size, 2, size)[:, 0], moment.reshape(2, size)[:, 0]),
        )

    def _by_arm(self, free: Arrays, rows: Rows, weights: Array, seen: Observed) -> Statistics:
        """The statistics if R is diagonal: sums over rows, in which no product of different arms occurs."""
        factor, told = jax.lax.stop_gradient(self._factors(free, rows, weights, seen))

        def of_block(shared: tuple[Arrays, Array], block: tuple[Array, ...]) -> tuple[Array, ...]:
            (free, basis), (covariates, treatment, outcome, noise, weights) = shared, block
            features = self.structure.features(free, covariates, basis)
            if self.link is None:
                noise = self.noise(free, treatment)
            variance = self.variance(free, covariates, treatment, weights, noise, basis)
            arms = arm_indicators(treatment).T * weights / variance
            square = jnp.sum(arms @ outcome**2)
            log_determinant = weights @ jnp.log(variance)
            return weighted_gram(arms, features), (arms * outcome) @ features, square, log_determinant

        by_row = rows.covariates, rows.treatment, seen.outcome * told, seen.variance, weights
        shared = free, self.structure.basis(free)
        grams, moment, square, log_determinant = sum_over_blocks(of_block, shared, by_row)
        grams, moment = grams * factor[:, :, None] * factor[:, None, :], moment * factor
        log_determinant = log_determinant - self._of_noise(seen, weights)
        none = jnp.zeros_like(grams[0, 0])
        first = jnp.stack([jnp.stack([grams[0, 0], none]), jnp.stack([none, grams[1, 0]])])
        return Statistics(
            {
                "gram": pack(jsl.block_diag(*grams)),
                "moment": moment.reshape(-1),
                "square": square,
                "log": log_determinant,
            },
            self.of_site(first, moment[:, 0]),
        )

    def _of_noise(self, seen: Observed, weights: Array) -> Array:
        """With a link, log|noise|: it does not depend on θ, but would count people of the same noise."""
        if self.link is None:
            return jnp.zeros(())
        return jnp.sum(jnp.where(weights > 0.0, weights * jnp.log(seen.variance), 0.0))

    def _factors(self, free: Arrays, rows: Rows, weights: Array, seen: Observed) -> tuple[Array, Array]:
        """The factors of the features, [arm, feature], and of people's outcomes."""
        if not rows.least:
            return jnp.ones((2, self.structure.width)), jnp.ones_like(weights)
        sd = jnp.sqrt(self.variance(free, rows.covariates, rows.treatment, weights, seen.variance))
        root = jnp.sqrt(weights)  # what is squared counts as often as the weight says
        design = self.design(free, rows.covariates, rows.treatment) * root[:, None]
        # Whitened, a person's outcome may stand out although it did not before.
        told = _cap(seen.outcome * root / sd, rows.least)
        return self._masks(design, design / sd[:, None], rows), told

    def kept(self, free: Arrays, rows: Rows, weights: Array) -> Array:
        design = self.design(free, rows.covariates, rows.treatment)
        whitened, _ = self.whiten(free, rows, weights, design)
        return self._masks(design * jnp.sqrt(weights)[:, None], whitened, rows)

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

    def remainder_covariance(self, free: Arrays, rows: Rows) -> Array:
        if self.diagonal:
            return self._own_variance(free, rows.covariates, rows.treatment)
        return self._own_covariance(free, rows)

    def _own_covariance(self, free: Arrays, rows: Rows) -> Array:
        between = between_arms(self.structure.arm_covariance(free), rows.treatment, rows.treatment)
        return between * self.structure.remainder(free, rows.covariates, rows.covariates)

    def observed_covariance(
        self, free: Arrays, rows: Rows, weights: Array, noise: Array | None = None
    ) -> Array:
        """R: K_obs of Lemma 2 minus the part due to shared features; rows not in use are uncorrelated."""
        noise = self.noise(free, rows.treatment) if noise is None else noise
        local, used = self._own_covariance(free, rows), (weights > 0.0).astype(float)
        return local * used[:, None] * used[None, :] + jnp.diag(shared_noise(noise, weights))

    def _own_variance(
        self, free: Arrays, covariates: Array, treatment: Array, basis: Array | None = None
    ) -> Array:
        scale = arm_indicators(treatment) @ jnp.diagonal(self.structure.arm_covariance(free))
        return scale * self.structure.remainder_diagonal(free, covariates, basis)

    def variance(
        self, free: Arrays, covariates: Array, treatment: Array, weights: Array, noise: Array,
        basis: Array | None = None,
    ) -> Array:  # fmt: skip
        """The diagonal of R; 1 for rows that are not in use."""
        return jnp.where(weights > 0, noise + self._own_variance(free, covariates, treatment, basis), 1.0)

    def whiten(
        self, free: Arrays, rows: Rows, weights: Array, columns: Array, noise: Array | None = None
    ) -> tuple[Array, Array]:
        """R^{−½}·columns of the rows in use, and log|R|. A person of weight w counts as w rows.

        If R is diagonal, the w rows have remainders of their own. Otherwise they share one, and are as a row
        whose noise has the variance σ²/w. Its determinant lacks w·(σ²)^{w−1}.
        """
        noise = self.noise(free, rows.treatment) if noise is None else noise
        if self.diagonal:
            variance = self.variance(free, rows.covariates, rows.treatment, weights, noise)
            return columns * jnp.sqrt(weights / variance)[:, None], weights @ jnp.log(variance)
        used = weights > 0.0
        root = jnp.linalg.cholesky(self.observed_covariance(free, rows, weights, noise))
        whitened = jsl.solve_triangular(root, columns * used[:, None], lower=True)
        beyond = (weights - 1.0) * jnp.log(noise) + jnp.log(jnp.where(used, weights, 1.0))
        return whitened, 2.0 * jnp.sum(jnp.log(jnp.diagonal(root))) + jnp.sum(jnp.where(used, beyond, 0.0))

    def sums(self, free: Arrays, statistics: Statistics) -> RegressionSums:
        total, per_site = statistics.summed, statistics.per_site
        gram = unpack(total["gram"])
        size = gram.shape[0] // 2
        return RegressionSums(
            gram=gram.reshape(2, size, 2, size).transpose(0, 2, 1, 3),
            moment=total["moment"].reshape(2, size),
            square=total["square"],
            log_determinant=total["log"],
            site_gram=per_site["gram"] if per_site else np.zeros((0, 2, 2, size)),
            site_moment=per_site["moment"] if per_site else np.zeros((0, 2)),
        )

    def sums_slopes(
        self, free: Arrays, statistics: Statistics, slopes: RegressionSums
    ) -> tuple[Arrays, Statistics]:
        size = 2 * slopes.moment.shape[1]
        summed = {
            "gram": packed_slopes(slopes.gram.transpose(0, 2, 1, 3).reshape(size, size)),
            "moment": slopes.moment.reshape(size),
            "square": slopes.square,
            "log": slopes.log_determinant,
        }
        by_site = {"gram": slopes.site_gram, "moment": slopes.site_moment} if self.structure.shifts else {}
        return {}, Statistics(summed, by_site)


def _cap(values: Array, least: float) -> Array:
    """The factors at which the squares of the values rest on more than `least` people."""
    if not least:
        return jnp.ones_like(values)
    sizes = jnp.abs(values)
    return jax.lax.stop_gradient(capped(sizes, least) / jnp.where(sizes > TINY, sizes, 1.0))
