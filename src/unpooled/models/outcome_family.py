"""Outcome families: Gaussian, 0/1 outcomes with a probit or logit link, Poisson and negative binomial counts.

Sites standardise every outcome. A family converts it back to its own scale; effects are in standard units.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.stats as jst
import numpy as np
from jax.scipy.special import gammaln, ndtr
from jaxtyping import Array, Float
from scipy.special import ndtri

from unpooled.maths.normal import log_probit
from unpooled.protocol.rows import Rows

LEAST = 1e-6
"""Probabilities are kept at least this far from 0 and 1."""
STEEPEST = 15.0
"""Log of the largest Poisson rate."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
NODES, WEIGHTS = _NODES, _WEIGHTS / _WEIGHTS.sum()
"""Nodes and weights of the expectation over a standard normal variable."""


class WorkingResponse(NamedTuple):
    """The working response of iteratively reweighted least squares: η + residual, with its weight."""

    residual: Array
    weight: Array


class Gaussian(eqx.Module):
    """y = η + noise, already in standard units."""

    learns_noise: ClassVar[bool] = True
    """Whether the family has a noise variance to be estimated."""

    def seen(self, standardised: Array) -> Array:
        """The outcome on the family's own scale."""
        return standardised

    def start(self) -> float:
        """η of the overall mean, used as a starting value."""
        return 0.0

    def mean(self, predictor: Array, variance: Array | float = 0.0) -> Array:
        """E[y] for a normal η with this mean and variance."""
        return predictor

    def working(self, outcome: Array, predictor: Array, noise: Array) -> WorkingResponse:
        return WorkingResponse(outcome - predictor, jnp.ones_like(predictor))

    def log_density(self, outcome: Array, predictor: Array, noise: Array) -> Array:
        return -0.5 * ((outcome - predictor) ** 2 / noise + jnp.log(2.0 * jnp.pi * noise))

    def standardised(self, difference: Array) -> Array:
        """A difference of outcomes in standard units."""
        return difference

    def standardised_mean(self, mean: Array) -> Array:
        """A mean outcome in standard units."""
        return mean


class Probit(eqx.Module):
    """P(y = 1) = Φ(η)."""

    rate: Float[Array, ""]
    sd: Float[Array, ""]
    learns_noise: ClassVar[bool] = False

    def seen(self, standardised: Array) -> Array:
        return (standardised > 0.0).astype(float)

    def start(self) -> float:
        return float(ndtri(np.clip(self.rate, 0.01, 0.99)))

    def mean(self, predictor: Array, variance: Array | float = 0.0) -> Array:
        return ndtr(predictor / jnp.sqrt(1.0 + variance))

    def log_density(self, outcome: Array, predictor: Array, noise: Array | None = None) -> Array:
        return log_probit(jnp.where(outcome > 0.5, predictor, -predictor))

    def working(self, outcome: Array, predictor: Array, noise: Array | None = None) -> WorkingResponse:
        """Fisher scoring."""
        rate = jnp.clip(ndtr(predictor), LEAST, 1.0 - LEAST)
        slope = jnp.maximum(jst.norm.pdf(predictor), LEAST)
        return WorkingResponse((outcome - rate) / slope, slope**2 / (rate * (1.0 - rate)))

    def draw(self, predictor: Array, key: Array) -> Array:
        return jax.random.bernoulli(key, self.mean(predictor)).astype(float)

    def standardised(self, difference: Array) -> Array:
        return difference / self.sd

    def standardised_mean(self, mean: Array) -> Array:
        return (mean - self.rate) / self.sd


class Logit(eqx.Module):
    """P(y = 1) = 1/(1 + exp(−η))."""

    rate: Float[Array, ""]
    sd: Float[Array, ""]
    learns_noise: ClassVar[bool] = False

    def seen(self, standardised: Array) -> Array:
        return (standardised > 0.0).astype(float)

    def start(self) -> float:
        rate = np.clip(self.rate, LEAST, 1.0 - LEAST)
        return float(np.log(rate / (1.0 - rate)))

    def mean(self, predictor: Array, variance: Array | float = 0.0) -> Array:
        """By Gauss–Hermite quadrature if η varies."""
        if isinstance(variance, float) and variance == 0.0:
            return jax.nn.sigmoid(predictor)
        steps = jnp.sqrt(variance)[..., None] * NODES
        return jax.nn.sigmoid(predictor[..., None] + steps) @ WEIGHTS

    def working(self, outcome: Array, predictor: Array, noise: Array | None = None) -> WorkingResponse:
        rate = jax.nn.sigmoid(predictor)
        weight = jnp.maximum(rate * (1.0 - rate), LEAST)
        return WorkingResponse((outcome - rate) / weight, weight)

    def expected_working(
        self, outcome: Array, predictor: Array, variance: Array, noise: Array | None = None
    ) -> WorkingResponse:
        """With the expected derivatives of the log likelihood if η is normal.

        E[1/(1 + exp(−η))] is taken to be 1/(1 + exp(−κη)) with κ = (1 + πv/8)^−½ (MacKay 1992), and the
        weight is its derivative, so that a large variance needs no fine quadrature.
        """
        kappa = 1.0 / jnp.sqrt(1.0 + jnp.pi / 8.0 * variance)
        rate = jax.nn.sigmoid(kappa * predictor)
        weight = jnp.maximum(kappa * rate * (1.0 - rate), LEAST)
        return WorkingResponse((outcome - rate) / weight, weight)

    def near(self, outcome: Array) -> Array:
        """η of a mean between the outcome and ½, from which to start."""
        return jnp.log((outcome + 0.5) / (1.5 - outcome))

    def log_density(self, outcome: Array, predictor: Array, noise: Array | None = None) -> Array:
        return jax.nn.log_sigmoid(jnp.where(outcome > 0.5, predictor, -predictor))

    def draw(self, predictor: Array, key: Array) -> Array:
        return jax.random.bernoulli(key, self.mean(predictor)).astype(float)

    def standardised(self, difference: Array) -> Array:
        return difference / self.sd

    def standardised_mean(self, mean: Array) -> Array:
        return (mean - self.rate) / self.sd


class Count(eqx.Module):
    """Base class of the families of counts: log E[y] = η."""

    rate: Float[Array, ""]
    sd: Float[Array, ""]
    learns_noise: ClassVar[bool] = False

    def seen(self, standardised: Array) -> Array:
        return jnp.round(self.rate + self.sd * standardised)

    def start(self) -> float:
        return float(np.log(max(float(self.rate), LEAST)))

    def mean(self, predictor: Array, variance: Array | float = 0.0) -> Array:
        return jnp.exp(jnp.minimum(predictor + 0.5 * variance, STEEPEST))

    def near(self, outcome: Array) -> Array:
        """η of a mean near the outcome, from which to start."""
        return jnp.log(outcome + 0.1 * jnp.maximum(self.rate, LEAST))

    def standardised(self, difference: Array) -> Array:
        return difference / self.sd

    def standardised_mean(self, mean: Array) -> Array:
        return (mean - self.rate) / self.sd


class Poisson(Count):
    """Var[y] = E[y]."""

    def log_density(self, outcome: Array, predictor: Array, noise: Array | None = None) -> Array:
        return outcome * predictor - self.mean(predictor) - gammaln(outcome + 1.0)

    def working(self, outcome: Array, predictor: Array, noise: Array | None = None) -> WorkingResponse:
        rate = jnp.maximum(self.mean(predictor), LEAST)
        return WorkingResponse((outcome - rate) / rate, rate)

    def draw(self, predictor: Array, key: Array) -> Array:
        return jax.random.poisson(key, self.mean(predictor)).astype(float)


class NegativeBinomial(Count):
    """Var[y] = μ + αμ²: a Poisson count whose rate is μ times a gamma variable.

    The dispersion α, the variance of that variable, takes the place of the noise variance. As α → 0 the
    family becomes Poisson.
    """

    def log_density(self, outcome: Array, predictor: Array, noise: Array) -> Array:
        """log Γ(y + 1/α) − log Γ(1/α) − log y! + y log(αμ) − (y + 1/α) log(1 + αμ)."""
        shape = 1.0 / noise
        excess = jnp.log1p(noise * self.mean(predictor))
        ways = gammaln(outcome + shape) - gammaln(shape) - gammaln(outcome + 1.0)
        return ways + outcome * (jnp.log(noise) + predictor) - (outcome + shape) * excess

    def working(self, outcome: Array, predictor: Array, noise: Array) -> WorkingResponse:
        """Fisher scoring."""
        rate = jnp.maximum(self.mean(predictor), LEAST)
        return WorkingResponse((outcome - rate) / rate, rate / (1.0 + noise * rate))

    def expected_working(
        self, outcome: Array, predictor: Array, variance: Array, noise: Array
    ) -> WorkingResponse:
        """With the expected derivatives of the log likelihood if η is normal, by Gauss–Hermite quadrature."""
        steps = jnp.sqrt(variance)[..., None] * NODES
        rate = jnp.maximum(self.mean(predictor[..., None] + steps), LEAST)
        excess, seen = 1.0 + noise[..., None] * rate, outcome[..., None]
        weight = (rate * (1.0 + noise[..., None] * seen) / excess**2) @ WEIGHTS
        return WorkingResponse(((seen - rate) / excess) @ WEIGHTS / weight, weight)

    def draw(self, predictor: Array, key: Array, noise: Array) -> Array:
        for_rate, for_count = jax.random.split(key)
        gamma = noise * jax.random.gamma(for_rate, jnp.broadcast_to(1.0 / noise, predictor.shape))
        return jax.random.poisson(for_count, self.mean(predictor) * gamma).astype(float)


ClosedFamily = Gaussian | Probit | Poisson | NegativeBinomial
"""Families whose mean over a normal η has a closed form."""
Family = ClosedFamily | Logit


def family_of(
    name: str,
    mean: float,
    sd: float,
    *,
    link: Literal["probit", "logit"] = "probit",
    counts: Literal["poisson", "negative_binomial"] = "poisson",
) -> Family:
    """Look up a family by name; `mean` and `sd` are those of the outcome before standardisation."""
    if name == "continuous":
        return Gaussian()
    binary = Probit if link == "probit" else Logit
    count = Poisson if counts == "poisson" else NegativeBinomial
    family = {"binary": binary, "count": count}[name]
    return family(jnp.asarray(mean), jnp.asarray(sd))


def possible(family: Family, means: Array) -> Array:
    """Mean outcomes in standard units, moved to where the family allows them."""
    if isinstance(family, Gaussian):
        return means
    highest = 1.0 if isinstance(family, Logit | Probit) else jnp.inf
    lowest, highest = (family.standardised_mean(jnp.asarray(end)) for end in (0.0, highest))
    return jnp.clip(means, lowest, highest)


def predictor_of(family: Family, means: Array, noise: Array) -> tuple[Array, Array]:
    """The predictor of mean outcomes in standard units, and the noise or, of counts, their dispersion."""
    if isinstance(family, Gaussian):
        return means, noise
    own = family.rate + family.sd * means
    if isinstance(family, Logit):
        own = jnp.clip(own, LEAST, 1.0 - LEAST)
        return jnp.log(own) - jnp.log1p(-own), noise
    usual = jnp.maximum(family.rate, LEAST)
    dispersion = jnp.maximum((family.sd**2 * noise - usual) / usual**2, LEAST)
    return jnp.log(jnp.maximum(own, LEAST)), dispersion


def individual_effect(
    family: Family, both: Float[Array, "n 2"], noise: Array, rows: Rows, correlation: Array, key: Array
) -> Float[Array, " n"]:
    """Draw (2w − 1)(y − y_mis), where y_mis is the outcome in the other arm.

    For Gaussian outcomes the noise of y_mis has the given correlation with the observed noise. 0/1 outcomes
    and counts have no additive noise, so their two outcomes are drawn independently.
    """
    arm, person = rows.treatment.astype(int), jnp.arange(len(both))
    seen, other = family.seen(rows.outcome), both[person, 1 - arm]
    if isinstance(family, Gaussian):
        sd = jnp.sqrt(noise)
        own = (seen - both[person, arm]) / sd[arm]
        independent = jnp.sqrt(1.0 - correlation**2) * jax.random.normal(key, own.shape)
        missing = other + sd[1 - arm] * (correlation * own + independent)
    elif isinstance(family, NegativeBinomial):
        missing = family.draw(other, key, noise[1 - arm])
    else:
        missing = family.draw(other, key)
    return family.standardised((2.0 * rows.treatment - 1.0) * (seen - missing))
