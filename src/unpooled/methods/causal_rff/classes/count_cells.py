"""Counts in cells of arm, class and site: Laplace's approximation for EM, and draws corrected for it.

A count in a cell is negative binomial with log mean offset + unit·θ and its arm's dispersion α. So the log
likelihood of everybody in the cell depends on θ through the number of people n and the sum of counts Y alone:

    ℓ(θ) = Y η − (Y + n/α) log(1 + α e^η),    η = offset + unit·θ,

and its quadratic expansion is that of the mean count, with n times the weight of one. The coordinator thus
takes as many of Newton's steps as it likes without an exchange. The rest of the likelihood of α depends on
the counts alone: sites send its sums at given dispersions, as log densities at the overall mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.models.dispersion import FINE, POINTS, log_posterior
from unpooled.models.link import Link

REACH = 1.0
"""Largest change of a log mean in one of Newton's steps."""
TURNS = 60
"""Most halvings of a slice; each is usually halved once or twice."""


class Expansion(NamedTuple):
    """ℓ(θ) ≈ level + score·θ − ½·weight·θ² for every cell."""

    weight: Float[Array, "m c"]
    score: Float[Array, "m c"]
    level: Float[Array, "m c"]


def log_likelihood(link: Link, people: Array, total: Array, theta: Array, dispersion: Array) -> Array:
    """ℓ(θ), less what it is at the overall mean."""
    predictor, family = link.predictor(theta), link.family
    beyond = jnp.log1p(dispersion * family.mean(predictor)) - jnp.log1p(dispersion * family.mean(link.offset))
    return total * (predictor - link.offset) - (total + people / dispersion) * beyond


def expanded(link: Link, people: Array, total: Array, theta: Array, dispersion: Array) -> Expansion:
    """The expansion about θ; zero for cells without people."""
    found = link.observed(total / jnp.where(people > 0.0, people, 1.0), theta, dispersion)
    weight = people / found.variance
    score = weight * found.outcome
    log = log_likelihood(link, people, total, theta, dispersion)
    return Expansion(weight, score, log - (score - weight * theta) * theta - 0.5 * weight * theta**2)


def moved(link: Link, before: Array, after: Array) -> Array:
    """One of Newton's steps, not too far."""
    reach = REACH / link.unit
    return link.near(before + jnp.clip(after - before, -reach, reach))


def log_dispersions(
    link: Link, people: Array, total: Array, theta: Array, variance: Array, sums: Float[Array, "2 k"]
) -> Float[Array, "2 k"]:
    """The expected log likelihood of every dispersion on the coarse grid, by arm.

    θ is known up to a variance; `sums` are the log densities at the overall mean.
    """

    def at(log: Array) -> Array:
        dispersion = jnp.exp(log)
        log_likelihoods = log_likelihood(link, people, total, theta, dispersion)
        weight = expanded(link, people, total, theta, dispersion).weight
        return jnp.sum(
            (log_likelihoods - 0.5 * variance * weight).reshape(-1, 2, people.shape[1] // 2), (0, 2)
        )

    return sums + jax.vmap(at)(jnp.asarray(POINTS)).T


def log_rest(sums: Float[Array, "2 k"], dispersion: Float[Array, " 2"]) -> Float[Array, ""]:
    """The log likelihood at the overall mean plus the log prior of the dispersions."""
    curves = log_posterior(sums)
    return sum(
        jnp.interp(jnp.log(dispersion[arm]), jnp.asarray(FINE), curves[arm]) for arm in (0, 1)
    ) + jnp.zeros(())


def slice_sampled(
    excess: Callable[[Array], Array], current: Array, mean: Array, drawn: Array, key: Array
) -> Array:
    """One step of elliptical slice sampling (Nishihara, Murray & Adams 2014) about a Gaussian approximation.

    `excess` is the log density less that of the approximation, of which `drawn` is a draw. The step leaves
    the density invariant, and is an independent draw if the approximation is exact.
    """
    for_height, for_angle, for_slice = jax.random.split(key, 3)
    height = excess(current) + jnp.log(jax.random.uniform(for_height))
    angle = jax.random.uniform(for_angle, maxval=2.0 * np.pi)

    def at(angle: Array) -> Array:
        return mean + (current - mean) * jnp.cos(angle) + (drawn - mean) * jnp.sin(angle)

    def outside(state: tuple[Array, Array, Array, Array]) -> Array:
        angle, _, _, turn = state
        return (excess(at(angle)) < height) & (turn < TURNS)

    def shrink(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        angle, low, high, turn = state
        low, high = jnp.where(angle < 0.0, angle, low), jnp.where(angle < 0.0, high, angle)
        share = jax.random.uniform(jax.random.fold_in(for_slice, turn))
        return low + share * (high - low), low, high, turn + 1

    start = (angle, angle - 2.0 * np.pi, angle, jnp.zeros((), int))
    found, _, _, turns = jax.lax.while_loop(outside, shrink, start)
    return jnp.where(turns < TURNS, at(found), current)
