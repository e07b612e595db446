"""A Gaussian model of outcomes that are not Gaussian: their predictor is η = offset + unit·f with a latent f.

The log odds of a 0/1 outcome, and the log of the mean of a count, are those of the overall mean plus a unit
times f, to which the priors of an outcome in standard units apply. About a point f⁰ the log likelihood is
that of a working response with noise of known variance, as if z = f⁰ + (y − μ)/(unit·dμ/dη) were observed.
FedCI does so for both kinds of outcomes, CausalRFF for counts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.models.outcome_family import Logit, NegativeBinomial, WorkingResponse, family_of

BINARY_UNIT, COUNT_UNIT = 6.0, 1.0
"""Largest units of the predictor, so that priors of scales in sds of an outcome are weak ones of log odds: a
slope of 0.3 for a sd of a covariate, and an effect that varies by 0.6."""
FURTHEST = 8.0
"""How far from that of the mean outcome the predictor may be in the point of expansion."""
STEEPEST = 30.0
"""Largest weight of a feature in the predictor: with larger ones a smooth curve becomes a step, whose sums
would tell on which side of it people are."""


class Observed(NamedTuple):
    """Outcomes as a Gaussian model sees them, with the variance of their noise."""

    outcome: Float[Array, " n"]
    variance: Float[Array, " n"]


class Link(eqx.Module):
    """The outcome's family, and the scale of its predictor."""

    family: Logit | NegativeBinomial
    offset: Float[Array, ""]
    unit: Float[Array, ""]
    noise: Float[Array, ""]
    """The sd of the noise of an outcome whose mean is the overall mean, without dispersion."""

    @property
    def counts(self) -> bool:
        return isinstance(self.family, NegativeBinomial)

    def predictor(self, latent: Array) -> Array:
        return self.offset + self.unit * latent

    def mean(self, latent: Array, variance: Array | float = 0.0) -> Array:
        """The mean outcome in standard units if the latent function is normal with this mean and variance."""
        scaled = variance if isinstance(variance, float) else self.unit**2 * variance
        return self.family.standardised_mean(self.family.mean(self.predictor(latent), scaled))

    @property
    def saturation(self) -> float:
        """s, if 0/1 outcomes tell (1 + sv)^−½ times as much of a latent function that varies by v as of one
        that hardly varies; 0 for counts."""
        return 0.0 if self.counts else math.pi / 8.0 * float(self.unit) ** 2

    @property
    def largest(self) -> float:
        """The largest weight of a feature, and the largest shift."""
        return STEEPEST / float(self.unit)

    def near(self, latent: Array) -> Array:
        """A latent function whose predictor is not far from that of the mean outcome."""
        return jnp.clip(latent, -FURTHEST / self.unit, FURTHEST / self.unit)

    def observed(self, outcome: Array, latent: Array, dispersion: Array) -> Observed:
        """The working response about a latent function, of outcomes on their own scale."""
        found = self.family.working(outcome, self.predictor(latent), dispersion)
        return self._as_observed(latent, found)

    def expected(self, outcome: Array, latent: Array, variance: Array, dispersion: Array) -> Observed:
        """The working response by expected derivatives, if the latent function is normal."""
        found = self.family.expected_working(
            outcome, self.predictor(latent), self.unit**2 * variance, dispersion
        )
        return self._as_observed(latent, found)

    def _as_observed(self, latent: Array, found: WorkingResponse) -> Observed:
        return Observed(latent + found.residual / self.unit, 1.0 / (self.unit**2 * found.weight))


def link_of(family: str, mean: float, sd: float) -> Link | None:
    """The link of a family by name; None for continuous outcomes, which need none."""
    if family == "continuous":
        return None
    found = family_of(family, mean, sd, link="logit", counts="negative_binomial")
    assert isinstance(found, Logit | NegativeBinomial)
    offset = jnp.asarray(found.start())
    unit = jnp.asarray(BINARY_UNIT if family == "binary" else min(COUNT_UNIT, sd / max(mean, 1e-6)))
    weight = found.working(jnp.asarray(mean), offset, jnp.zeros(())).weight
    return Link(found, offset, unit, 1.0 / (unit * jnp.sqrt(weight)))
