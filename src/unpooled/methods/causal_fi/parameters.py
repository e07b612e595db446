"""Parameters given everybody completed, drawn at the coordinator from sums: one chain's round.

p(u | x) is a linear regression of all u on x with a free covariance; p(w | x, u) a probit with its latent
drawn beside the rows; the outcome's model is linear about its mode, coefficients normal by group, and a
site's offset in either arm normal too, all with variances that are learned.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

from unpooled.maths import partial_pooling as pooling
from unpooled.maths.triangles import unpack
from unpooled.maths.wishart import Wishart, draw_factors
from unpooled.methods.causal_fi.structures import EXPECTED, LEARNED
from unpooled.protocol.messages import Tree

PRIOR_TERMS = 4.0
"""How many terms of the expected size the prior of a variance is worth."""
NOISE, OFFSET, PROPENSITY = 0.3, 0.05, 0.3
"""Expected variances: of the outcome's noise, of a site's offset, of a slope of the treatment's probit."""
LEAST_SPREAD = 0.1
"""What each u varies by, given x and the other u, before anything is seen."""
FURTHEST = 1.0
"""How many prior sds the outcome's mode may move in a round."""


class Chain(NamedTuple):
    """Where a chain stands. Of the outcome both the draw, and the mode about which the model is linear."""

    confounders: Tree
    treatment: Float[Array, " p"]
    propensity: Float[Array, ""]
    outcome: Float[Array, "2 b"]
    mode: Float[Array, "2 b"]
    bend: Float[Array, " 2"]
    offset: Float[Array, "m 2"]
    mode_offset: Float[Array, "m 2"]
    noise: Float[Array, " 2"]
    variances: Float[Array, "2 g"]
    site: Float[Array, " 2"]


class Sizes(NamedTuple):
    """How many covariates, incomplete confounders and sites."""

    covariates: int
    incomplete: int
    sites: int

    @property
    def all(self) -> int:
        return 1 + self.covariates + self.incomplete


def begin(sizes: Sizes) -> Chain:
    """Nothing known, and a linear outcome."""
    nothing, offsets = jnp.zeros((2, sizes.all)), jnp.zeros((sizes.sites, 2))
    return Chain(
        confounders={
            "intercept": jnp.zeros(sizes.incomplete),
            "slopes": jnp.zeros((sizes.covariates, sizes.incomplete)),
            "covariance": jnp.eye(sizes.incomplete),
        },
        treatment=jnp.zeros(sizes.all),
        propensity=jnp.asarray(PROPENSITY),
        outcome=nothing,
        mode=nothing,
        bend=jnp.ones(2),
        offset=offsets,
        mode_offset=offsets,
        noise=jnp.ones(2),
        variances=jnp.tile(jnp.asarray(EXPECTED), (2, 1)),
        site=jnp.full(2, OFFSET),
    )


def advance(leaves: tuple[Chain, Tree, Array], groups: Array, several: bool) -> Chain:
    """All parameters anew. `groups` [b] names the variance of each coefficient."""
    chain, sums, key = leaves
    for_u, for_w, *for_y = jax.random.split(jax.random.wrap_key_data(key), 4)
    gram = unpack(sums["confounders"])
    covariates = chain.confounders["slopes"].shape[0]
    treatment, propensity = _treatment(gram, sums["treatment"], chain.propensity, for_w)
    by_arm = [_outcome(_of_arm(chain, sums, arm), groups, for_y[arm], several=several) for arm in (0, 1)]
    arms = jax.tree.map(lambda *parts: jnp.stack(parts), *by_arm)
    return chain._replace(
        confounders=_confounders(gram, 1 + covariates, for_u),
        treatment=treatment,
        propensity=propensity,
        outcome=arms["outcome"],
        mode=arms["mode"],
        offset=arms["offset"].T,
        mode_offset=arms["mode_offset"].T,
        noise=arms["noise"],
        variances=arms["variances"],
        site=arms["site"],
    )


def _confounders(gram: Float[Array, "p p"], size: int, key: Array) -> Tree:
    """Matrix-normal and inverse Wishart: (B, S) given the products of (1, x) and u."""
    for_covariance, for_slopes = jax.random.split(key)
    count, width = gram[0, 0], gram.shape[0] - size
    if not width:
        return {
            "intercept": jnp.zeros(0),
            "slopes": jnp.zeros((size - 1, 0)),
            "covariance": jnp.zeros((0, 0)),
        }
    root = jnp.linalg.cholesky(gram[:size, :size] + jnp.eye(size))
    white = pooling.forward(root, gram[:size, size:])
    left = gram[size:, size:] - white.T @ white + LEAST_SPREAD * (width + 2) * jnp.eye(width)
    draws = draw_factors(Wishart(jnp.eye(width), width + 2 + count), for_covariance, 1)[0]
    spread = jnp.linalg.cholesky(left) @ jsl.solve_triangular(draws, jnp.eye(width), lower=True).T
    noise = jax.random.normal(for_slopes, white.shape) @ spread.T
    found = pooling.back(root, white + noise)
    return {"intercept": found[0], "slopes": found[1:], "covariance": spread @ spread.T}


def _treatment(gram: Array, score: Array, variance: Array, key: Array) -> tuple[Array, Array]:
    for_slopes, for_variance = jax.random.split(key)
    prior = jnp.full(len(score), 1.0 / variance).at[0].set(0.1)
    root = jnp.linalg.cholesky(gram + jnp.diag(prior))
    white = pooling.forward(root, score) + jax.random.normal(for_slopes, score.shape)
    found = pooling.back(root, white)
    return found, _variance(jnp.sum(found[1:] ** 2), len(score) - 1.0, PROPENSITY, for_variance)


class _Arm(NamedTuple):
    gram: Array
    score: Array
    square: Array
    people: Array
    cross: Array
    site_score: Array
    mode: Array
    noise: Array
    variances: Array
    site: Array


def _of_arm(chain: Chain, sums: Tree, arm: int) -> _Arm:
    return _Arm(
        unpack(sums["outcome"][arm]), sums["score"][arm], sums["square"][arm], sums["people"][:, arm],
        sums["site_cross"][:, arm], sums["site_score"][:, arm], chain.mode[arm], chain.noise[arm],
        chain.variances[arm], chain.site[arm],
    )  # fmt: skip


def _outcome(arm: _Arm, groups: Array, key: Array, *, several: bool) -> dict[str, Array]:
    """Coefficients and offsets of one arm by the exact solve, then variances given them."""
    for_draw, for_noise, for_groups, for_site = jax.random.split(key, 4)
    scale = jnp.sqrt(arm.variances[groups])
    prior = pooling.Prior(jnp.diag(scale), jnp.sqrt(arm.site * several).reshape(1, 1))
    weight = 1.0 / arm.noise
    sums = pooling.Sums(
        weight * arm.gram, weight * arm.score, weight * arm.people[:, None, None],
        weight * arm.cross[:, None, :], weight * arm.site_score[:, None],
    )  # fmt: skip
    fitted = pooling.posterior(sums, prior)
    mean, drawn = pooling.coefficients(fitted, prior), pooling.coefficients(fitted, prior, for_draw)
    step = mean.common - arm.mode
    mode = arm.mode + step * jnp.minimum(1.0, FURTHEST / jnp.max(jnp.abs(step) / scale))
    offset = drawn.site[:, 0]
    left = _squares(arm, drawn.common, offset)
    found = mode + drawn.common - mean.common
    totals = jnp.zeros(len(EXPECTED)).at[groups].add(found**2)
    levels = jnp.zeros(len(EXPECTED)).at[groups].add(1.0)
    variances = _variance(totals, levels, jnp.asarray(EXPECTED), for_groups)
    return {
        "outcome": found,
        "mode": mode,
        "offset": offset,
        "mode_offset": mean.site[:, 0],
        "noise": _variance(left, arm.people.sum(), NOISE, for_noise),
        "variances": jnp.where(jnp.asarray(LEARNED), variances, jnp.asarray(EXPECTED)),
        "site": _variance(jnp.sum(offset**2), float(len(offset)), OFFSET, for_site),
    }


def _squares(arm: _Arm, coefficients: Array, offset: Array) -> Array:
    """Σ (response − slopesᵀβ − offset)², from the sums."""
    found = arm.square - 2.0 * (coefficients @ arm.score + offset @ arm.site_score)
    found = found + coefficients @ arm.gram @ coefficients + 2.0 * offset @ (arm.cross @ coefficients)
    return jnp.maximum(found + arm.people @ offset**2, 1e-9)


def _variance(squares: Array, count: Array | float, expected: Array | float, key: Array) -> Array:
    """Of `count` normal terms whose squares sum to this: inverse gamma."""
    shape = 0.5 * (PRIOR_TERMS + count) * jnp.ones_like(squares)
    return 0.5 * (PRIOR_TERMS * jnp.asarray(expected) + squares) / jax.random.gamma(key, shape)
