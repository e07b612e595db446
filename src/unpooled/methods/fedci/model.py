"""Structures of the outcome functions: shared features, covariances between arms, and priors.

Each structure is Eq. (the-model) with its Gaussian parts written as features with random weights: an
intercept and a linear part per arm, and basis functions for the kernel components. `Projection` learns
functions of a few linear indices. `Kernel` has an isotropic or ARD kernel; the part of the kernel that its
basis functions do not capture is a Gaussian process at each site (the `remainder`).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths.covariance import arm_factor, effect_factor
from unpooled.maths.kernels import (
    Family,
    correlation,
    inducing_basis,
    inducing_features,
    kernel_matrix,
    line_basis,
    line_features,
    slope_variance,
)
from unpooled.maths.regression import RegressionPrior
from unpooled.methods.fedci.bounds import ARMS, CLOSENESS, DIRECTION, LINE_LENGTH, NOISE, SCALE, SPACE_LENGTH
from unpooled.protocol.records import Arrays
from unpooled.protocol.stage import Bounds

INTERCEPT_SD = 3.0
"""Prior sd of the intercepts, in sds of the outcome."""
PROPENSITY_SD = 0.03
"""Centre of the prior of the scale of the slope along the propensity, the direction in which the treatment
depends on the covariates. It has a scale of its own: with many irrelevant covariates, a confounder that is
shrunk like them would bias the effect."""
GRID = np.linspace(-4.0, 4.0, 17)
"""Inducing inputs of a one-dimensional function, in sds of its index. The basis functions are waves over the
whole grid, so that few people near its ends dominate none of them."""


LEAST_VARIANCE = 0.01
"""Smallest variance of an index, per squared length of its direction; a smaller one would make it steep."""


LENGTH, PAPER_LENGTH = (1.0, 0.5), (0.0, 1.0)
"""Centre and sd of the prior of the log length-scale per root of the number of covariates. A short one makes
neighbours nearly independent, so that the kernel acts as a second noise term."""


NUGGET = 1e-6
"""Added to the variance of the shifts, so that two sites may have the same moments."""


class Scales(NamedTuple):
    """Where the priors of a prognostic function and of an effect are centred, in sds of the outcome."""

    prognostic: float
    effect: float


LINEAR, SHIFT, SMOOTH = Scales(0.05, 0.02), Scales(0.1, 0.1), Scales(0.7, 0.1)
"""Slopes of the covariates, shifts of the sites, and functions with a kernel."""


class Structure(eqx.Module):
    """Base class of all structures: intercept, linear part, noise and site shifts."""

    site_distances: Float[Array, "m r"]
    """Squared distances of the sites' moments from those of the reference sites (`Scaling`)."""
    family: Family = eqx.field(static=True)
    shifts: bool = eqx.field(static=True)
    coupled: bool = eqx.field(static=True)
    noisy: bool = eqx.field(static=True)
    """Whether the noise is a hyperparameter; otherwise it follows from the outcome's family."""

    evaluations: ClassVar[int]
    """Default limit on the evaluations of the objective."""
    draws_per_theta: ClassVar[int]
    """Draws of weights and shifts per draw of the hyperparameters; they need no work at the sites."""

    @property
    def adjusted(self) -> bool:
        """Whether the slope along the propensity has a scale of its own."""
        return True

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of features."""

    @abstractmethod
    def basis(self, free: Arrays) -> Float[Array, "*c b b"]:
        """What the features of all people have in common, so that blocks of them need not compute it anew."""

    @abstractmethod
    def features(self, free: Arrays, covariates: Array, basis: Array | None = None) -> Float[Array, "n p"]:
        """φ(x), with the intercept first."""

    @abstractmethod
    def feature_factors(self, free: Arrays) -> Float[Array, "p 2 2"]:
        """T_f: square root of the prior covariance between arms of each feature's weights."""

    @abstractmethod
    def start(self, directions: np.ndarray, noise: np.ndarray) -> Arrays:
        """Starting values of the hyperparameters, from a ridge regression per arm."""

    @abstractmethod
    def scales(self, noise: np.ndarray, rows: float) -> Arrays:
        """Approximate uncertainty of each hyperparameter, in the shape of `start`."""

    @abstractmethod
    def log_prior(self, free: Arrays, fixed: Arrays) -> Float[Array, ""]:
        """Log prior of the hyperparameters on their unconstrained scale."""

    def bounds(self) -> Bounds:
        """The lowest and highest value of every hyperparameter that a site answers to."""
        shifts = {"shift": ARMS, "closeness": CLOSENESS} if self.shifts else {}
        slope = {"propensity_slope": SCALE} if self.adjusted else {}
        noise = {"noise": NOISE} if self.noisy else {}
        return {"arms": ARMS, "linear": ARMS, **noise, **slope, **shifts}

    def arm_factor(self, parameters: Array) -> Array:
        """Ψ^½ from the arms' scales and a cross term; diagonal if the arms are not coupled."""
        keep = jnp.array([1.0, 1.0 if self.coupled else 0.0, 1.0])
        return arm_factor(parameters * keep)

    def effect_factor(self, parameters: Array) -> Array:
        """Ψ^½ from the scales of a prognostic function and an effect, or of the arms if not coupled."""
        return effect_factor(parameters) if self.coupled else self.arm_factor(parameters)

    def prior(self, free: Arrays) -> RegressionPrior:
        """The Gaussian prior of all weights and shifts."""
        # The last feature is the direction of the propensities (`Posterior.propensity`).
        factors = jnp.concatenate([self.feature_factors(free), self._propensity_factor(free)[None]])
        if not self.shifts:
            return RegressionPrior(factors, None, jnp.zeros((len(self.site_distances), 0)))
        site = self.site_factor(free)
        return RegressionPrior(factors, self.shift_factor(free), site, self._own_sd(site))

    def zero_slopes(self, count: int) -> RegressionPrior:
        """Zeros in the shape of the priors under a batch of `count` hyperparameters."""
        sites, references = self.site_distances.shape
        factors = np.zeros((count, self.width + 1, 2, 2))
        if not self.shifts:
            return RegressionPrior(factors, None, np.zeros((count, sites, 0)))
        own = None if references == sites else np.zeros((count, sites))
        return RegressionPrior(factors, np.zeros((count, 2, 2)), np.zeros((count, sites, references)), own)

    def _propensity_factor(self, free: Arrays) -> Float[Array, "2 2"]:
        """The same slope in both arms; one for each arm if they are not coupled."""
        if not self.adjusted:
            return jnp.zeros((2, 2))
        shared = jnp.array([[1.0, 0.0], [1.0, 0.0]]) if self.coupled else jnp.eye(2)
        return jnp.exp(free["propensity_slope"]) * shared

    def shift_factor(self, free: Arrays) -> Array:
        return self.effect_factor(free["shift"])

    def site_factor(self, free: Arrays) -> Float[Array, "m r"]:
        """L: shifts of sites with similar covariate moments are correlated (the paper's γ over moments).

        LLᵀ is the correlation matrix if every site is a reference. Otherwise it is what shifts have in common
        with those of the reference sites, and the rest is a site's own.
        """
        matrix = correlation("squared_exponential", self.site_distances / jnp.exp(2.0 * free["closeness"]))
        sites, references = matrix.shape
        # A reference site is the one at distance zero from itself.
        inner = matrix if sites == references else matrix[jnp.argmin(self.site_distances, axis=0)]
        root = jnp.linalg.cholesky(inner + NUGGET * jnp.eye(references))
        return root if sites == references else jsl.solve_triangular(root, matrix.T, lower=True).T

    def site_root(self, free: Arrays) -> Float[Array, "m m"]:
        """The Cholesky factor of the correlation between the shifts of all sites."""
        site = self.site_factor(free)
        own = self._own_sd(site)
        return site if own is None else jnp.linalg.cholesky(site @ site.T + jnp.diag(own**2))

    def _own_sd(self, site: Float[Array, "m r"]) -> Float[Array, " m"] | None:
        """The sd of a site's own part of its shift, so that all shifts have the same variance."""
        if site.shape[0] == site.shape[1]:
            return None
        return jnp.sqrt(jnp.maximum(1.0 - jnp.sum(site**2, axis=1), 0.0) + NUGGET)

    def _base_factors(self, free: Arrays, dimension: int) -> list[Array]:
        intercept = INTERCEPT_SD * jnp.eye(2)[None]
        linear = self.effect_factor(free["linear"])
        return [intercept, jnp.broadcast_to(linear, (dimension, 2, 2))]

    def _base_start(self, noise: np.ndarray) -> Arrays:
        start = {"linear": self._log_scales(LINEAR)}
        if self.noisy:
            start |= {"noise": np.log(noise)}
        if self.adjusted:
            start |= {"propensity_slope": np.log(PROPENSITY_SD)}
        if self.shifts:
            start |= {"shift": self._log_scales(SHIFT), "closeness": np.zeros(())}
        return start

    def _log_scales(self, scales: Scales) -> np.ndarray:
        second = scales.effect if self.coupled else scales.prognostic
        return np.array([np.log(scales.prognostic), 0.0, np.log(second)])

    def _scales_prior(self, parameters: Array, scales: Scales) -> Array:
        """Log-normal scales, and a standard normal cross term."""
        return _normal(parameters, self._log_scales(scales), 1.0)

    def _base_scales(self, rows: float) -> Arrays:
        scales = {"linear": np.full(3, 0.7)}
        if self.noisy:
            scales |= {"noise": np.full(2, 1.0 / np.sqrt(rows))}
        if self.adjusted:
            scales |= {"propensity_slope": np.full((), 0.7)}
        if self.shifts:
            scales |= {"shift": np.full(3, 0.7), "closeness": np.full((), 0.5)}
        return scales

    def _base_prior(self, free: Arrays, fixed: Arrays) -> Array:
        value = self._scales_prior(free["linear"], LINEAR)
        if self.noisy:
            value += _normal(free["noise"], fixed["noise"], 0.35)
        if self.adjusted:
            value += _normal(free["propensity_slope"], np.log(PROPENSITY_SD), 1.0)
        if self.shifts:
            value += self._scales_prior(free["shift"], SHIFT) + _normal(free["closeness"], 0.0, 0.5)
        return value


class Projection(Structure):
    """Σ_c f_c(p_cᵀx): functions of a few learned linear indices, each with its own covariance of arms."""

    correlation: Float[Array, "d d"]
    components: int = eqx.field(static=True)
    saturation: float = eqx.field(static=True, default=0.0)
    """How fast outcomes tell less of a function that varies more (`Link.saturation`); 0 if they do not."""

    evaluations: ClassVar[int] = 50
    draws_per_theta: ClassVar[int] = 4

    def bounds(self) -> Bounds:
        return super().bounds() | {"direction": DIRECTION, "length": LINE_LENGTH}

    @property
    def width(self) -> int:
        return 1 + len(self.correlation) + self.components * len(GRID)

    def index(self, direction: Array, covariates: Array) -> Array:
        """pᵀx divided by its sd, so that the length of p has no effect."""
        variance = direction @ self.correlation @ direction
        return (
            covariates
            @ direction
            / jnp.sqrt(jnp.maximum(variance, LEAST_VARIANCE * direction @ direction) + 1e-12)
        )

    def basis(self, free: Arrays) -> Array:
        lengths = jnp.exp(free["length"])
        return jnp.stack([line_basis(self.family, jnp.asarray(GRID), length) for length in lengths])

    def features(self, free: Arrays, covariates: Array, basis: Array | None = None) -> Array:
        parts = [jnp.ones((covariates.shape[0], 1)), covariates]
        bases = self.basis(free) if basis is None else basis
        for c in range(self.components):
            index, length = self.index(free["direction"][c], covariates), jnp.exp(free["length"][c])
            parts.append(line_features(self.family, index, jnp.asarray(GRID), length, bases[c]))
        return jnp.concatenate(parts, axis=1)

    def feature_factors(self, free: Arrays) -> Array:
        factors = self._base_factors(free, self.correlation.shape[0])
        for c in range(self.components):
            factors.append(jnp.broadcast_to(self.arm_factor(free["arms"][c]), (len(GRID), 2, 2)))
        return jnp.concatenate(factors)

    def start(self, directions: np.ndarray, noise: np.ndarray) -> Arrays:
        # Component c starts as a function of arm c mod 2, along that arm's ridge direction.
        chosen = directions[np.arange(self.components) % 2]
        own, other = np.log(1.0), np.log(0.05)
        first, second = np.array([own, 0.0, other]), np.array([other, 0.0, own])
        scales = np.stack([first if c % 2 == 0 else second for c in range(self.components)])
        unit = chosen / np.linalg.norm(chosen, axis=1, keepdims=True)
        return {"direction": unit, "length": np.ones(self.components), "arms": scales} | self._base_start(
            noise
        )

    def scales(self, noise: np.ndarray, rows: float) -> Arrays:
        size = self.components
        direction = np.full((size, self.correlation.shape[0]), 2.0 * noise.mean() / np.sqrt(rows))
        return {
            "direction": direction,
            "length": np.full(size, 0.2),
            "arms": np.full((size, 3), 0.5),
        } | self._base_scales(rows)

    def log_prior(self, free: Arrays, fixed: Arrays) -> Array:
        kernel = _normal(free["length"], 1.0, 0.3) + _arm_prior(free["arms"], 0.7, 1.5)
        return kernel + self._direction_prior(free, fixed) + self._base_prior(free, fixed)

    def _direction_prior(self, free: Arrays, fixed: Arrays) -> Array:
        """Von Mises–Fisher prior about each arm's ridge direction, minus an Occam factor.

        The concentration d lets a direction deviate by about its own length; the length, which the data do
        not identify, is kept near one. The number of direction parameters grows with d, so their mode
        over-fits. The Occam factor −½(d − 1) log(1 + information/concentration) approximates integrating
        them out, using the expected information about a direction under the kernel's slope variance. A 0/1
        outcome tells little where its probability is near 0 or 1, as it is for most people if the function
        varies much.
        """
        direction, dimension = free["direction"], free["direction"].shape[1]
        squared = jnp.sum(direction**2, axis=1) + 1e-12
        centre = fixed["direction"][np.arange(self.components) % 2]
        cosine = jnp.sum(direction * centre, axis=1) / jnp.sqrt(squared)
        variance = jnp.sum(self.arm_factor(free["arms"]) ** 2, axis=2)
        steepness = slope_variance(self.family) * variance / jnp.exp(2.0 * free["length"])[:, None]
        log_sd = free["noise"] if self.noisy else fixed["noise"]
        precision = jnp.exp(-2.0 * log_sd) / jnp.sqrt(1.0 + self.saturation * jnp.sum(variance, axis=0))
        information = steepness @ (fixed["rows"] * precision)
        occam = 0.5 * (dimension - 1) * jnp.log1p(information / dimension)
        return jnp.sum(dimension * (cosine + 0.5 * (jnp.log(squared) - squared)) - occam)


class Kernel(Structure):
    """f(x) with an isotropic or ARD kernel: basis functions shared by all sites, a remainder at each site."""

    inducing: Float[Array, "b d"]
    ard: bool = eqx.field(static=True)
    tied: bool = eqx.field(static=True)
    """Whether linear part, kernel and shifts share one covariance of arms Ψ, as in the paper."""

    evaluations: ClassVar[int] = 15
    draws_per_theta: ClassVar[int] = 16

    def bounds(self) -> Bounds:
        return super().bounds() | {"length": SPACE_LENGTH}

    @property
    def adjusted(self) -> bool:
        return not self.tied

    @property
    def width(self) -> int:
        return 1 + sum(self.inducing.shape)

    def kernel_factor(self, free: Arrays) -> Float[Array, "2 2"]:
        """Ψ^½ of the kernel."""
        return self.arm_factor(free["arms"]) if self.tied else self.effect_factor(free["arms"])

    def length(self, free: Arrays) -> Array:
        return jnp.exp(free["length"]) * jnp.sqrt(1.0 * self.inducing.shape[1])

    def basis(self, free: Arrays) -> Array:
        return inducing_basis(self.family, self.inducing, self.length(free))

    def features(self, free: Arrays, covariates: Array, basis: Array | None = None) -> Array:
        parts = [jnp.ones((covariates.shape[0], 1)), covariates]
        if len(self.inducing):
            parts.append(inducing_features(self.family, covariates, self.inducing, self.length(free), basis))
        return jnp.concatenate(parts, axis=1)

    def arm_covariance(self, free: Arrays) -> Float[Array, "2 2"]:
        root = self.kernel_factor(free)
        return root @ root.T

    def remainder(self, free: Arrays, left: Array, right: Array) -> Array:
        """k(x, x') − q(x, x'): the part of the kernel that the shared basis functions do not capture."""
        matrix = kernel_matrix(self.family, left, right, self.length(free))
        if not len(self.inducing):
            return matrix
        # Reuse the features if both sides are the same people; reverse-mode AD would not detect that.
        first = inducing_features(self.family, left, self.inducing, self.length(free))
        same = right is left
        second = first if same else inducing_features(self.family, right, self.inducing, self.length(free))
        return matrix - first @ second.T

    def remainder_diagonal(self, free: Arrays, covariates: Array, basis: Array | None = None) -> Array:
        if not len(self.inducing):
            return jnp.ones(covariates.shape[0])
        shared = inducing_features(self.family, covariates, self.inducing, self.length(free), basis)
        return jnp.maximum(1.0 - jnp.sum(shared**2, axis=1), 0.0)

    def feature_factors(self, free: Arrays) -> Array:
        root = self.kernel_factor(free)
        factors = self._base_factors(free, self.inducing.shape[1])
        if self.tied:
            factors[1] = jnp.exp(free["linear"][0]) * jnp.broadcast_to(root, factors[1].shape)
        return jnp.concatenate([*factors, jnp.broadcast_to(root, (len(self.inducing), 2, 2))])

    def shift_factor(self, free: Arrays) -> Array:
        # Eq. (the-model) has one Ψ^½ for both f and g.
        return (
            jnp.exp(free["shift"][0]) * self.arm_factor(free["arms"])
            if self.tied
            else super().shift_factor(free)
        )

    def start(self, directions: np.ndarray, noise: np.ndarray) -> Arrays:
        centre, _ = self._length_prior
        length = np.full(self.inducing.shape[1] if self.ard else 1, centre)
        return {"length": length, "arms": self._kernel_start()} | self._base_start(noise)

    @property
    def _length_prior(self) -> tuple[float, float]:
        return PAPER_LENGTH if self.tied else LENGTH

    def _kernel_start(self) -> np.ndarray:
        return _log_arms(SMOOTH.prognostic) if self.tied else self._log_scales(SMOOTH)

    def scales(self, noise: np.ndarray, rows: float) -> Arrays:
        length = np.full(self.inducing.shape[1] if self.ard else 1, 0.5)
        return {"length": length, "arms": np.full(3, 0.5)} | self._base_scales(rows)

    def log_prior(self, free: Arrays, fixed: Arrays) -> Array:
        kernel = _normal(free["length"], *self._length_prior) + _normal(
            free["arms"], self._kernel_start(), 1.0
        )
        return kernel + self._base_prior(free, fixed)


def _log_arms(scale: float) -> np.ndarray:
    return np.array([np.log(scale), 0.0, np.log(scale)])


def _normal(value: Array, centre: Array | np.ndarray | float, sd: float) -> Array:
    return -0.5 * jnp.sum(((value - centre) / sd) ** 2)


def _arm_prior(parameters: Array, scale: float, sd: float) -> Array:
    """Log-normal prior about `scale` for the arms' scales; standard normal for the cross term."""
    logs = parameters[..., jnp.array([0, 2])]
    return _normal(logs, jnp.log(scale), sd) + _normal(parameters[..., 1], 0.0, 1.0)
