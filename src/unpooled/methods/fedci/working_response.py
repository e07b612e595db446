"""0/1 outcomes and counts: Laplace's approximation, by iteratively reweighted least squares.

The predictor is η = offset + unit·f, where f is FedCI's Gaussian model. The log likelihood of an outcome is
replaced by its quadratic expansion about a point f⁰: as if z = f⁰ + (y − μ)/(unit·dμ/dη) were observed with
noise of variance 1/(unit²·ω). So the evidence and the posterior of FedCI's regression remain what they are.
The coordinator sends the hyperparameters and weights of f⁰, the same for all sites; a site adds its own shift
and remainder, which it finds by itself. Once f⁰ is the posterior mode, the approximation is Laplace's.
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

STEPS = 8
"""Steps in which a site finds its own shift and remainder."""
REACH = 1.0
"""Largest change of the predictor in one of them."""
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
    shared, own, dispersion = latent(evidence, about, rows, weights)
    outcome = link.family.seen(rows.outcome)
    near = (link.family.near(outcome) - link.offset) / link.unit
    point = jnp.where(about["known"] > 0.5, link.near(shared + own), near)
    found = link.observed(outcome, point, dispersion)
    if rows.least:
        # Where the curve is steep, few people may tell more of it than all others together.
        precision = capped(weights / found.variance, rows.least)
        found = found._replace(variance=jnp.where(precision > 0.0, weights / precision, found.variance))
    return jax.lax.stop_gradient(found)


class Latent(NamedTuple):
    """The latent function of a site's rows: with the site's shift, and what the remainder adds."""

    shared: Float[Array, " n"]
    own: Float[Array, " n"]
    dispersion: Float[Array, " n"]


def latent(evidence: Evidence, about: Arrays, rows: Rows, weights: Array) -> Latent:
    """The point of expansion.

    The site's shift and remainder maximise the expansion of its log likelihood plus their log prior, given
    the weights of the features.
    """
    link, structure, free = evidence.link, evidence.structure, about["free"]
    assert link is not None
    outcome = link.family.seen(rows.outcome)
    arms = jnp.stack([1.0 - rows.treatment, rows.treatment], axis=1)
    shared = jnp.einsum("nf,af,na->n", structure.features(free, rows.covariates), about["beta"], arms)
    dispersion = arms @ about["dispersion"]
    covariance = evidence.remainder_covariance(free, rows)
    root = structure.shift_factor(free) if structure.shifts else jnp.zeros((2, 2))

    def step(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        shift, own = state
        target, variance = link.observed(outcome, link.near(shared + arms @ shift + own), dispersion)
        known = jnp.concatenate([arms, (target - shared)[:, None]], axis=1)
        solved = _solved(covariance, variance, weights, known)
        information, score = arms.T @ solved[:, :2], arms.T @ solved[:, 2]
        moved = root @ jnp.linalg.solve(jnp.eye(2) + root.T @ information @ root, root.T @ score)
        moved_own = _times(covariance, weights, solved[:, 2] - solved[:, :2] @ moved)
        return shift + _short(link, moved - shift), own + _short(link, moved_own - own)

    shift, own = jax.lax.fori_loop(0, STEPS, step, (jnp.zeros(2), jnp.zeros_like(shared)))
    return Latent(shared + arms @ shift, own, dispersion)


def _solved(covariance: Array, variance: Array, weights: Array, columns: Array) -> Float[Array, "n k"]:
    """(remainder + noise)⁻¹·columns of the rows in use; zeros for the others."""
    if covariance.ndim == 1:
        return columns * (weights / (covariance + variance))[:, None]
    used = weights > 0.0
    inner = jnp.where(used[:, None] & used, covariance, 0.0) + jnp.diag(shared_noise(variance, weights))
    return jsl.cho_solve((jnp.linalg.cholesky(inner), True), columns * used[:, None])


def _times(covariance: Array, weights: Array, values: Array) -> Float[Array, " n"]:
    if covariance.ndim == 1:  # each of the people for whom a person counts has a remainder of their own
        return covariance * values / jnp.where(weights > 0.0, weights, 1.0)
    return covariance @ values


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
        "dispersion": np.zeros((count, 2)),
        "known": np.zeros(count),
    }
