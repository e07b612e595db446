"""0/1 outcomes and counts: a Gaussian variational approximation, by expected Newton steps.

The predictor is η = offset + unit·f, where f is FedCI's Gaussian model. The log likelihood ℓ of an outcome is
replaced by a quadratic one about what is known of f, a normal distribution with mean m and variance v: as if
m + E[ℓ']/ω were observed with noise of variance 1/ω, where ω = E[−ℓ'']. So the evidence and the posterior of
FedCI's regression remain what they are. Once the normal distribution is the posterior, it is the Gaussian one
that is nearest to the exact posterior in KL divergence (Opper and Archambeau 2009); with v = 0 it would be
Laplace's approximation. The coordinator sends hyperparameters, mean and principal deviations of the weights,
the same for all sites; a site adds its own shift and remainder, which it finds by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float

from unpooled.disclosure.effective_people import capped
from unpooled.models.link import Link, Observed
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds

if TYPE_CHECKING:
    from unpooled.methods.fedci.stages import Evidence

STEPS, PASSES = 3, 3
"""Steps in which a site finds its own shift and remainder, and how often it then finds the variance of its
people's predictors."""
REACH = 1.0
"""Largest change of the predictor in one of them."""
DEVIATIONS = 10
"""Number of principal deviations of the weights that accompany their mean. It is no length of a padded table
(`padded_size`): sites refuse parameters with an entry for each person."""
DISPERSIONS = np.geomspace(1e-4, 30.0, 28)
"""Dispersions of counts for which the sites send the sum of squared Pearson residuals."""

ABOUT: Bounds = {"known": (0.0, 1.0), "dispersion": (0.0, 100.0)}
"""Bounds of what accompanies the hyperparameters and weights of the point of expansion."""


def observed(evidence: Evidence, about: Arrays, rows: Rows, weights: Array) -> Observed:
    """The working response of a site's rows about the point of expansion, found from the rows in use.

    Before any weights are known, the point is near the outcomes themselves.
    """
    link = evidence.link
    assert link is not None
    found = latent(evidence, about, rows, weights)
    outcome = link.family.seen(rows.outcome)
    near = (link.family.near(outcome) - link.offset) / link.unit
    known = about["known"] > 0.5
    point = jnp.where(known, link.near(found.shared + found.own), near)
    found = link.expected(outcome, point, jnp.where(known, found.variance, 0.0), found.dispersion)
    if rows.least:
        # Where the curve is steep, few people may tell more of it than all others together.
        precision = capped(weights / found.variance, rows.least)
        found = found._replace(variance=jnp.where(precision > 0.0, weights / precision, found.variance))
    return jax.lax.stop_gradient(found)


class Latent(NamedTuple):
    """What is known of the latent function of a site's rows: with the site's shift, and what the remainder
    adds."""

    shared: Float[Array, " n"]
    own: Float[Array, " n"]
    variance: Float[Array, " n"]
    """Of their sum."""
    dispersion: Float[Array, " n"]


def latent(
    evidence: Evidence, about: Arrays, rows: Rows, weights: Array, *, remainder: bool = True
) -> Latent:
    """The point of expansion.

    The site's shift and remainder, or its shift alone, are those under the expansion of its log likelihood,
    given the weights of the features.
    """
    link, structure, free = evidence.link, evidence.structure, about["free"]
    assert link is not None
    outcome = link.family.seen(rows.outcome)
    arms = jnp.stack([1.0 - rows.treatment, rows.treatment], axis=1)
    features = structure.features(free, rows.covariates)
    shared = jnp.einsum("nf,af,na->n", features, about["beta"], arms)
    spread = jnp.einsum("nf,kaf,na->nk", features, about["deviations"][:DEVIATIONS], arms)
    dispersion = arms @ about["dispersion"]
    covariance = evidence.remainder_covariance(free, rows) if remainder else jnp.zeros_like(shared)
    root = structure.shift_factor(free) if structure.shifts else jnp.zeros((2, 2))

    def step(_: int, state: State) -> State:
        expanded = link.expected(
            outcome, link.near(shared + arms @ state.shift + state.own), state.variance, dispersion
        )
        factor = _factor(covariance, expanded.variance, weights)
        columns = jnp.concatenate([arms, (expanded.outcome - shared)[:, None]], axis=1)
        solved = factor.solve(columns)
        arm, residual = solved[:, :2], solved[:, 2]
        moved = _of_shift(root, arms.T @ arm) @ (arms.T @ residual)
        moved_own = _times(covariance, weights, residual - arm @ moved)
        shift = state.shift + _short(link, moved - state.shift)
        return State(shift, state.own + _short(link, moved_own - state.own), state.variance)

    def spread_anew(_: int, state: State) -> State:
        state = jax.lax.fori_loop(0, STEPS, step, state)
        noise = link.expected(
            outcome, link.near(shared + arms @ state.shift + state.own), state.variance, dispersion
        ).variance
        factor = _factor(covariance, noise, weights)
        arm, solved = factor.solve(arms), factor.solve(spread)
        of_shift = _of_shift(root, arms.T @ arm)
        # Of people who count w times, one of them: with a remainder of their own, or with one for all.
        one = _one_of(weights, covariance)
        noise = noise * one.noise
        # (P + N)⁻¹ of the spread, and its diagonal, for P of shift and remainder: by Woodbury's identity.
        solved = (solved - arm @ of_shift @ (arms.T @ solved)) * one.solved[:, None]
        arm = arm * one.solved[:, None]
        diagonal = factor.diagonal() * one.solved - jnp.einsum("na,ab,nb->n", arm, of_shift, arm)
        # What the weights explain of f if shift and remainder follow them, and what is left of these.
        of_weights = jnp.sum((noise[:, None] * solved) ** 2, axis=1)
        left = jnp.maximum(noise - noise**2 * diagonal, 0.0)
        return state._replace(variance=jnp.where(weights > 0.0, of_weights + left, 0.0))

    start = State(jnp.zeros(2), jnp.zeros_like(shared), jnp.sum(spread**2, axis=1))
    found = jax.lax.fori_loop(0, PASSES, spread_anew, start)
    return Latent(shared + arms @ found.shift, found.own, found.variance, dispersion)


class State(NamedTuple):
    """What a site has found: its shift, its people's remainders, and the variance of their predictors."""

    shift: Float[Array, " two"]
    own: Float[Array, " n"]
    variance: Float[Array, " n"]


def _of_shift(root: Array, information: Array) -> Float[Array, "2 2"]:
    """The covariance of a shift with prior covariance TTᵀ, given this information about it."""
    return root @ jnp.linalg.solve(jnp.eye(2) + root.T @ information @ root, root.T)


class _Factor(NamedTuple):
    """Remainder plus noise of the rows with weight 1: its Cholesky factor, or its inverse if diagonal."""

    factor: Array
    used: Array

    def solve(self, columns: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """(remainder + noise)⁻¹·columns; zeros for the other rows."""
        if self.factor.ndim == 1:
            return columns * self.factor[:, None]
        return jsl.cho_solve((self.factor, True), columns * self.used[:, None])

    def diagonal(self) -> Float[Array, " n"]:
        if self.factor.ndim == 1:
            return self.factor
        inverse = jsl.solve_triangular(self.factor, jnp.eye(len(self.factor)), lower=True)
        return jnp.sum(inverse**2, axis=0) * self.used


def _factor(covariance: Array, noise: Array, weights: Array) -> _Factor:
    if covariance.ndim == 1:
        return _Factor(weights / (covariance + noise), weights)
    used = weights > 0.0
    inner = jnp.where(used[:, None] & used, covariance, 0.0) + jnp.diag(shared_noise(noise, weights))
    return _Factor(jnp.linalg.cholesky(inner), used)


def _times(covariance: Array, weights: Array, values: Array) -> Float[Array, " n"]:
    if covariance.ndim == 1:  # each of the people for whom a person counts has a remainder of their own
        return covariance * values / jnp.where(weights > 0.0, weights, 1.0)
    return covariance @ values


class _OneOf(NamedTuple):
    """By what noise, and what is solved, is multiplied for one of w people whom a row stands for."""

    noise: Float[Array, " n"]
    solved: Float[Array, " n"]


def _one_of(weights: Array, covariance: Array) -> _OneOf:
    share, whole = 1.0 / jnp.where(weights > 0.0, weights, 1.0), jnp.ones_like(weights)
    return _OneOf(whole, share) if covariance.ndim == 1 else _OneOf(share, whole)


def shared_noise(variance: Array, weights: Array) -> Float[Array, " n"]:
    """σ²/w: the variance of the noise of w observations of one remainder; 1 for rows that are not in use."""
    used = weights > 0.0
    return jnp.where(used, variance / jnp.where(used, weights, 1.0), 1.0)


def _short(link: Link, change: Array) -> Array:
    return jnp.clip(change, -REACH / link.unit, REACH / link.unit)


def nothing_known(free: Arrays, width: int) -> Arrays:
    """The point of expansion of the first fit, for a batch of hyperparameters."""
    count = len(next(iter(free.values())))
    return {
        "free": free,
        "beta": np.zeros((count, 2, width)),
        "deviations": np.zeros((count, DEVIATIONS, 2, width), np.float32),
        "dispersion": np.zeros((count, 2)),
        "known": np.zeros(count),
    }
