"""Calibration of individual effects by held-out outcomes.

A site predicts the outcome of people whom a fit has not seen, and counts how many lie further from their
prediction than a number of sds. The counts are weighted by the odds of being in the other arm, because it is
these people whose outcome in this arm has to be predicted. They give

- a scale: by how much prediction intervals must be stretched to cover as often as they say;
- conformal intervals (Lei and Candès 2021), which cover whether or not the outcome model is right.

The noise of the two arms is compared between people with the same covariates. If it differs, effects differ
between people by more than the model attributes to covariates.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri

from unpooled.disclosure.effective_people import TINY, capped, effective_people
from unpooled.maths.streams import stream
from unpooled.protocol.records import Check, Record
from unpooled.protocol.rows import Rows

THRESHOLDS = np.array([*np.arange(0.5, 3.01, 0.1).round(2), 3.25, 3.5, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0])
"""Numbers of sds beyond which people are counted."""
LARGEST_ODDS = 99.0
"""Odds of treatment are kept between one in this number and this number."""
LEVEL = 0.95
"""Level of the intervals at which the scale and the check are computed."""
SHRUNK = 100.0
"""Number of people at which the logarithm of the scale is halved; a quantile of few people is uncertain."""
NOISE_RATIO = 1.05
"""Largest ratio of the arms' noise variances that passes, at the lower end of its interval."""
LOWEST, ERRORS = 0.9, 3.0
"""Smallest share of held-out outcomes within their 95 % intervals that passes the check; with few people
it is that many standard errors below 95 %."""


def odds(coefficients: Float[Array, " f"], covariates: Float[Array, "n d"]) -> Float[Array, " n"]:
    """The odds of treatment, from coefficients of [1, x]."""
    logit = coefficients[..., 0] + jnp.sum(covariates * coefficients[..., 1:], axis=-1)
    return jnp.exp(jnp.clip(logit, -np.log(LARGEST_ODDS), np.log(LARGEST_ODDS)))


def exceedances(
    errors: Float[Array, " n"], chances: Float[Array, " n"], rows: Rows
) -> dict[str, Float[Array, "2 t"]]:
    """By arm, the weights of all people and of those whose standardised error is beyond each threshold.

    `chances` are the odds of treatment. With limits, a threshold is left out unless enough people are between
    it and the one before, and beyond it.
    """
    arms = jnp.stack([1.0 - rows.treatment, rows.treatment]) * rows.present
    weight = capped(arms * jnp.stack([chances, 1.0 / chances]), rows.least)
    beyond = (jnp.abs(errors) > jnp.asarray(THRESHOLDS)[:, None]).astype(float)
    kept = jax.vmap(lambda one: _kept(one, beyond, rows.least))(weight)
    total = weight.sum(axis=1, keepdims=True)
    squares = (weight**2).sum(axis=1, keepdims=True)
    return {"beyond": kept * (weight @ beyond.T), "total": kept * total, "squares": kept * squares}


def arm_variances(
    squares: Float[Array, " n"], chances: Float[Array, " n"], rows: Rows
) -> dict[str, Float[Array, "2 4"]]:
    """By arm, what a mean of squared errors and its standard error are computed from.

    The sums are those of weights, squared weights, weighted squares, and squared weighted squares. People are
    weighted by the propensity of the other arm (overlap weights), so that both arms have the same covariates;
    noise that depends on covariates is then the same in both.
    """
    arms = jnp.stack([1.0 - rows.treatment, rows.treatment]) * rows.present
    other = jnp.stack([chances, jnp.ones_like(chances)]) / (1.0 + chances)
    weight = capped(arms * other, rows.least)
    values = capped(weight * squares, rows.least)
    sums = (weight, weight**2, values, values**2)
    return {"noise": jnp.stack([one.sum(axis=1) for one in sums], axis=1)}


def _kept(weight: Float[Array, " n"], beyond: Float[Array, "t n"], least: float) -> Float[Array, " t"]:
    """1 for thresholds at which the people since the last such one, and those beyond, are enough; else 0."""
    if not least:
        return jnp.ones(len(beyond))

    def next_threshold(inside: Array, further: Array) -> tuple[Array, Array]:
        between, outside = weight * inside * (1.0 - further), weight * further
        both = jnp.minimum(effective_people(between), effective_people(outside))
        keep = both > least
        return jnp.where(keep, further, inside), keep.astype(float)

    return jax.lax.scan(next_threshold, (weight > TINY).astype(float), beyond)[1]


@dataclass(frozen=True)
class NoiseOfArms(Record):
    """The noise variance of each arm, and the standard error of the logarithm of their ratio."""

    variance: np.ndarray
    error: float

    @property
    def least_ratio(self) -> float:
        """How many times larger the larger variance is: lower end of a 95 % interval."""
        apart = abs(np.log(self.variance[1] / self.variance[0]))
        return float(np.exp(apart - ndtri(0.975) * self.error))

    @property
    def unexplained(self) -> float:
        """The sd of the effects that covariates do not explain, if it is all that the arms differ by."""
        if self.least_ratio <= NOISE_RATIO:
            return 0.0
        return float(np.sqrt(abs(self.variance[1] - self.variance[0])))

    def unexplained_effects(self, draws: int, people: int) -> np.ndarray:
        """Draws [draws, people] of what covariates do not explain: normal quantiles in random order, so that
        means over draws stay as they are."""
        quantiles = ndtri((np.arange(draws) + 0.5) / draws)
        every = np.repeat(quantiles[:, None], people, axis=1)
        return self.unexplained * stream(0, "unexplained effects").permuted(every, axis=0)

    def check(self) -> Check:
        return Check.at_most(
            "noise of the arms", self.least_ratio, NOISE_RATIO,
            "How many times more the outcome varies in one arm than in the other, given the covariates: "
            "lower end of a 95 % interval of the ratio of variances. Up to the threshold, both arms have "
            "about the same noise. Above it, effects differ between people by more than the model attributes "
            "to covariates. If they do so through a covariate, for example by a sharp interaction, intervals "
            "of conditional effects are too narrow; `effect_interval(method=\"calibrated\")` widens them by "
            "the difference. Average effects do not depend on it.",
            "effects of people",
        )  # fmt: skip


@dataclass(frozen=True)
class Calibration(Record):
    """Held-out errors over all sites, [arm, threshold], in standard units."""

    beyond: np.ndarray
    total: np.ndarray
    squares: np.ndarray
    """Sum of the squared weights."""
    noise: np.ndarray | None = None
    """Sums over the arm's people, from which its noise is computed (`arm_variances`); None if unknown."""
    log_odds: np.ndarray | None = None
    """Coefficients of [1, x] in the log odds of treatment; None if the counts are not weighted by them, so
    that there are no conformal intervals."""

    def noise_of_arms(self) -> NoiseOfArms | None:
        """The noise variance of held-out outcomes in each arm; None if no site could tell of both."""
        if self.noise is None or np.min(self.noise) <= TINY:
            return None
        weight, squared, total, fourth = self.noise.T
        variance = total / weight
        error = np.sqrt(np.maximum(fourth - variance**2 * squared, 0.0)) / total
        return NoiseOfArms(variance, float(np.sqrt(np.sum(error**2))))

    @property
    def known(self) -> bool:
        """Whether any site could tell."""
        return bool(np.all(self.total.max(axis=1) > 0.0))

    @property
    def people(self) -> np.ndarray:
        """By arm, the effective number of held-out people."""
        return self.total.max(axis=1) ** 2 / np.maximum(self.squares.max(axis=1), TINY)

    def share_within(self, level: float = LEVEL) -> np.ndarray:
        """By arm, the share of held-out outcomes within prediction intervals of this level."""
        limit = ndtri(0.5 + 0.5 * level)
        return 1.0 - np.array([np.interp(limit, *arm) for arm in self._tails()])

    def scale(self) -> np.ndarray:
        """By arm, the factor by which prediction intervals must be stretched, shrunk towards 1."""
        found = [np.interp(LEVEL - 1.0, -tail, at) for at, tail in self._tails()]
        people = self.people
        return (np.array(found) / ndtri(0.5 + 0.5 * LEVEL)) ** (people / (people + SHRUNK))

    def _tails(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """By arm, thresholds and the shares beyond them, which do not increase."""
        found = []
        for beyond, total in zip(self.beyond, self.total, strict=True):
            known = total > 0.0
            share = np.minimum.accumulate(beyond[known] / total[known])
            found.append((np.append(0.0, THRESHOLDS[known]), np.append(1.0, share)))
        return found

    def quantile(self, arm: np.ndarray, chances: np.ndarray, alpha: float) -> np.ndarray:
        """How many sds an outcome in the given arm may be away, for people with these odds of treatment.

        The smallest threshold beyond which there is at most a share `alpha` of the weights, where the person
        themselves counts as beyond; infinite if there is none (weighted conformal prediction).
        """
        weight = np.where(arm == 0, chances, 1.0 / chances)[:, None]
        beyond, total = self.beyond[arm], self.total[arm]
        enough = (total > 0.0) & (beyond + weight <= alpha * (total + weight))
        return np.where(enough.any(axis=1), THRESHOLDS[np.argmax(enough, axis=1)], np.inf)

    def check(self) -> Check:
        shares = self.share_within()
        worse = int(np.argmin(shares))
        error = np.sqrt(LEVEL * (1.0 - LEVEL) / max(float(self.people[worse]), 1.0))
        least = float(min(LOWEST, LEVEL - ERRORS * error))
        found = float(shares[worse])
        return Check.at_least(
            "held-out outcomes", found, least,
            "Share of held-out outcomes within their 95 % prediction intervals, in the arm where it is "
            "smaller. Below the threshold the outcome model is too sure of itself; intervals of individual "
            "effects are stretched to make up for it, those of average and conditional effects are not.",
            "effects of people",
        )  # fmt: skip
