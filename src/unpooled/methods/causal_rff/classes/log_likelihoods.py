"""Latent classes at the sites: z is one of a few classes, and x, w and y are independent given z and the arm.

The model is p(z|s) p(x|z) p(w|z,s) p(y|z,w,s), with p(x|z) the same at every site. Sites receive the classes'
log-likelihoods: expectations under the posterior of the parameters (EM), or values under one draw (Gibbs).
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unpooled.disclosure.effective_people import capped, effective_people, enough
from unpooled.models.dispersion import log_densities
from unpooled.models.link import Link
from unpooled.models.outcome_family import NODES, WEIGHTS, Family, Logit, NegativeBinomial
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Draws, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import ANY, FOLD, LINEAR, Bounds, Stage

ABSENT = -1e30
"""Log-probability of an unused class."""


class ColumnKinds(eqx.Module):
    """Which covariates are 0/1 and which are numeric; standardised 0/1 columns are positive for ones."""

    binary: Int[Array, " b"]
    continuous: Int[Array, " c"]

    def ones(self, rows: Rows) -> Float[Array, "n b"]:
        return (rows.covariates[:, self.binary] > 0.0).astype(float)

    def numbers(self, rows: Rows) -> Float[Array, "n c"]:
        return rows.covariates[:, self.continuous]


class ClassLogLikelihoods(NamedTuple):
    """Log-likelihood terms of the classes: posterior expectations (EM), or values under one draw (Gibbs).

    `centre`, `weight` and `level` give a number's log density −½·weight·(x − centre)² + level; `variance` is
    the posterior variance of θ (0 under a draw). The site axis [m] exists at the coordinator only; a site
    receives its own part.
    """

    classes: Float[Array, "m k"]
    one: Float[Array, "k b"]
    zero: Float[Array, "k b"]
    centre: Float[Array, "k c"]
    weight: Float[Array, "k c"]
    level: Float[Array, " k"]
    treatment: Float[Array, "m 2 k"]
    """log p(w | z, s), by arm."""
    outcome: Float[Array, "m 2 k"]
    """θ: the expected outcome, its logit, or the latent function of a count's link."""
    variance: Float[Array, "m 2 k"]
    noise: Float[Array, " 2"]
    """Of counts, the dispersions."""
    chance: Float[Array, "m 2 2 k"]
    """log p(y | z, w, s) for y = 0 and 1; empty unless outcomes are 0/1."""


BY_SITE = ("classes", "treatment", "outcome", "variance", "chance")
"""Parts that differ between sites."""
_CLASS_AXIS = {"one": -2, "zero": -2, "centre": -2, "weight": -2, "noise": None}
"""Axis of the classes in each part, if it is not the last one."""


def as_draws(likelihoods: ClassLogLikelihoods, classes: int) -> Draws:
    """The log-likelihoods as draws to be sent: split into shared and by site, without unused classes.

    A class without people is drawn from the prior, whose tails reach beyond the bounds of a question; such
    draws are clipped.
    """

    def first(value: np.ndarray, axis: int | None) -> np.ndarray:
        return value if axis is None else np.take(value, np.arange(classes), axis=axis)

    parts = {
        name: np.clip(first(np.asarray(part), _CLASS_AXIS.get(name, -1)), *PARTS[name])
        for name, part in likelihoods._asdict().items()
    }
    by_site = {name: parts.pop(name) for name in BY_SITE}
    return Draws(parts, by_site)


def log_likelihoods_of(**parts: np.ndarray) -> ClassLogLikelihoods:
    return ClassLogLikelihoods(**{name: jnp.asarray(value) for name, value in parts.items()})


def of_covariates(likelihoods: ClassLogLikelihoods, columns: ColumnKinds, rows: Rows) -> Float[Array, "n k"]:
    """log p(z | s) + log p(x | z)."""
    ones, numbers = columns.ones(rows), columns.numbers(rows)
    squares = numbers**2 @ likelihoods.weight.T - 2.0 * numbers @ (likelihoods.weight * likelihoods.centre).T
    squares = squares + jnp.sum(likelihoods.weight * likelihoods.centre**2, axis=1)
    binary = ones @ likelihoods.one.T + (1.0 - ones) @ likelihoods.zero.T
    return likelihoods.classes + binary - 0.5 * squares + likelihoods.level


def of_treatment(likelihoods: ClassLogLikelihoods, rows: Rows) -> Float[Array, "n k"]:
    return likelihoods.treatment[rows.treatment.astype(int)]


def of_outcome(
    likelihoods: ClassLogLikelihoods,
    rows: Rows,
    *,
    binary: bool,
    link: Link | None = None,
    predictive: bool = False,
) -> Float[Array, "n k"]:
    """E log p(y | z, w, s); with `predictive`, log E p(y | z, w, s) for held-out people."""
    arm = rows.treatment.astype(int)
    if link is not None:
        return _of_count(likelihoods, rows, link, predictive=predictive)
    if binary:
        return likelihoods.chance[(rows.outcome > 0.0).astype(int), arm]
    squares = (rows.outcome[:, None] - likelihoods.outcome[arm]) ** 2
    noise, variance = likelihoods.noise[arm][:, None], likelihoods.variance[arm]
    if predictive:
        noise, variance = noise + variance, 0.0
    return -0.5 * ((squares + variance) / noise + jnp.log(2.0 * jnp.pi * noise))


def _of_count(
    likelihoods: ClassLogLikelihoods, rows: Rows, link: Link, *, predictive: bool
) -> Float[Array, "n k"]:
    """The expectation to second order in θ, as in Laplace's approximation; predictive ones by quadrature."""
    arm, family = rows.treatment.astype(int), link.family
    outcome, noise = family.seen(rows.outcome)[:, None], likelihoods.noise[arm][:, None]
    theta, variance = likelihoods.outcome[arm], likelihoods.variance[arm]
    if not predictive:
        found = link.observed(outcome, theta, noise)
        return family.log_density(outcome, link.predictor(theta), noise) - 0.5 * variance / found.variance
    each = theta[..., None] + jnp.sqrt(variance)[..., None] * NODES
    logs = family.log_density(outcome[..., None], link.predictor(each), noise[..., None])
    return jax.nn.logsumexp(logs + jnp.log(WEIGHTS), axis=-1)


PROBABILITY = (-100.0, 1e-9)
"""Bounds of log probabilities."""
PARTS: Bounds = {
    "classes": (2.0 * ABSENT, 1e-9),
    "one": PROBABILITY,
    "zero": PROBABILITY,
    "centre": (-30.0, 30.0),
    "weight": (1e-4, 400.0),
    "level": (-1e3, 1e3),
    "treatment": PROBABILITY,
    "outcome": LINEAR,
    "variance": (0.0, 1e4),
    "noise": (1e-6, 100.0),
    "chance": PROBABILITY,
}
"""Bounds of `ClassLogLikelihoods`: a class is no narrower than a twentieth of a standard deviation."""


class Classes(Stage):
    """Counts and sums by class, from class probabilities (EM) or from drawn classes (Gibbs)."""

    columns: ColumnKinds
    family: Family
    drawn: bool = eqx.field(static=True)
    """Whether classes are drawn."""
    link: Link | None = None
    """The link of counts."""
    reveals: ClassVar[str] = (
        "by arm and latent class: expected number of people and sum of outcomes at this site; for sums over "
        "sites: sums of the covariates by latent class; of counts, their log densities at given dispersions "
        "by arm"
    )

    def bounds(self) -> Bounds:
        return {"fold": FOLD, "temper": (0.0, 1.0), "key": ANY, **PARTS}

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        fixed = parameters.fixed
        likelihoods = ClassLogLikelihoods(**fixed["views"], **parameters.per_site)
        use = rows.present * (rows.fold != fixed["fold"])
        logs = of_covariates(likelihoods, self.columns, rows) + of_treatment(likelihoods, rows)
        binary = isinstance(self.family, Logit)
        logs = logs + of_outcome(likelihoods, rows, binary=binary, link=self.link)
        if self.drawn:
            key = rows.own_key(jax.random.wrap_key_data(fixed["key"]))
            chosen = jnp.argmax(logs + jax.random.gumbel(key, logs.shape), axis=1)
            share = jax.nn.one_hot(chosen, logs.shape[1])
        else:
            share = jax.nn.softmax(fixed["temper"] * logs, axis=1)
        each = -use * jnp.sum(jax.scipy.special.xlogy(share, share), axis=1)
        entropy = jnp.sum(capped(each, rows.least))
        share = share * use[:, None]
        arms = jnp.stack([1.0 - rows.treatment, rows.treatment])
        outcome = self.family.seen(rows.outcome)
        ones, numbers = self.columns.ones(rows), self.columns.numbers(rows)
        # Withheld cells of arm and class are missing from all sums alike, so that means stay means.
        share = share * large_enough(arms[:, None, :] * share.T, rows.least)[rows.treatment.astype(int)]
        return Statistics(
            {
                "ones": share.T @ ones,
                "numbers": share.T @ numbers,
                "squares": share.T @ numbers**2,
                "entropy": entropy,
                **self._of_outcomes(arms * share.sum(axis=1), outcome, rows.least),
            },
            {"people": arms @ share, "outcome": (arms * outcome) @ share},
        )

    def _of_outcomes(self, arms: Array, outcome: Array, least: float) -> Arrays:
        """What else of the outcomes is needed by arm: their squares, or log densities of counts."""
        if self.link is None or not isinstance(self.family, NegativeBinomial):
            return {"square": arms @ outcome**2}
        at_mean = jnp.broadcast_to(self.link.offset, outcome.shape)
        return {"dispersion": log_densities(self.family, outcome, at_mean, arms, least)}


def large_enough(shares: Float[Array, "*a k n"], least: float) -> Float[Array, "*a k"]:
    """By how much to multiply the sums of each class, so that none rests on few people.

    The sums of everybody are known, so those of a withheld class follow from the others if it is the only
    one. The next smallest class is withheld too if the withheld classes together rest on few people.
    """
    factor = enough(shares, least)
    if not least:
        return factor
    withheld = jnp.sum(jnp.where((factor < 1.0)[..., None], shares, 0.0), axis=-2)
    recoverable = jnp.any(factor < 1.0, axis=-1) & (effective_people(withheld) <= least)
    size = jnp.where(factor < 1.0, jnp.inf, shares.sum(axis=-1))
    smallest = jnp.arange(shares.shape[-2]) == jnp.argmin(size, axis=-1)[..., None]
    return jnp.where(recoverable[..., None] & smallest, 0.0, factor)
