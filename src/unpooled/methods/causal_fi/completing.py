"""Missing confounders drawn beside the rows, so that they fit all that is known of a person.

What is missing matters through three numbers only: s, what it adds to the outcome linearly; t, the index
along which the outcome bends; p, what it adds to the treatment's probit. Given x and what is seen, u is
normal, and so are (s, t, p). Given t, what outcome and treatment say of s and p is in closed form. So t is
drawn along a line, then the probit's latent, and u given these by Gaussian conditioning: an exact draw but
for the line's grid. Nothing is iterated, so a site keeps nothing between rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths.conditional_normal import given_seen, solve
from unpooled.protocol.messages import Tree
from unpooled.protocol.rows import Rows

GRID = np.linspace(-6.0, 6.0, 33)[:-1]
"""Where t is looked for, in sds of what it is given x and what is seen; then finer about what was chosen."""
FINER = 16
CERTAIN = 1e-10
"""Variance of t about itself: people with nothing missing, or an outcome without a bend, are no exception."""
S, T, P = range(3)
Curve = Callable[[Float[Array, " n"]], Float[Array, " n"]]


class Holes(eqx.Module):
    """p(u_mis | x, u_seen) of every person, under one draw of p(u | x): u = centre + root·ε."""

    centre: Float[Array, "n u"]
    root: Float[Array, "n u u"]


class Matters(NamedTuple):
    """(s, t, p) of every person, all else that goes into outcome, index and probit included."""

    mean: Float[Array, "n 3"]
    root: Float[Array, "n 3 u"]

    @property
    def covariance(self) -> Float[Array, "n 3 3"]:
        return jnp.einsum("niu,nju->nij", self.root, self.root)


class Seen(NamedTuple):
    """What tells of u beside x: outcome, its noise, the treatment's sign, and how the outcome bends."""

    outcome: Float[Array, " n"]
    noise: Float[Array, " n"]
    sign: Float[Array, " n"]
    curve: Curve


class Completed(NamedTuple):
    """Everybody's u, and the probit's latent that goes with it."""

    u: Float[Array, "n u"]
    latent: Float[Array, " n"]


def holes(confounders: Tree, rows: Rows) -> Holes:
    mean = confounders["intercept"] + rows.covariates @ confounders["slopes"]
    given = given_seen(confounders["covariance"], rows.seen)
    beyond = rows.seen * (rows.incomplete - mean)
    missing = mean + jnp.einsum("nij,nj->ni", given.regression, beyond)
    return Holes(jnp.where(rows.seen > 0.0, rows.incomplete, missing), given.root)


def complete(open_: Holes, matters: Matters, seen: Seen, key: Array) -> Completed:
    """u given everything that is known."""
    for_line, for_latent, for_u, for_noise = jax.random.split(key, 4)
    index = _along_the_line(matters, seen, for_line)
    bent = seen.outcome - seen.curve(index)
    line = given_index(matters, index)
    mean, variance = line.probit(bent, seen.noise)
    lower = jnp.where(seen.sign > 0.0, 0.0, -jnp.inf)
    upper = jnp.where(seen.sign > 0.0, jnp.inf, 0.0)
    sd = jnp.sqrt(1.0 + variance)
    latent = mean + sd * jax.random.truncated_normal(for_latent, (lower - mean) / sd, (upper - mean) / sd)
    # Matheron's rule: a draw that knows nothing, moved by how far what it says is from what was seen.
    spread = jnp.stack([seen.noise, jnp.full_like(index, CERTAIN), jnp.ones_like(index)], axis=1)
    noise = jax.random.normal(for_u, open_.centre.shape)
    said = matters.mean + jnp.einsum("niu,nu->ni", matters.root, noise)
    said = said + jnp.sqrt(spread) * jax.random.normal(for_noise, spread.shape)
    off = jnp.stack([bent, index, latent], axis=1) - said
    total = matters.covariance + jax.vmap(jnp.diag)(spread)
    moved = noise + jnp.einsum("niu,ni->nu", matters.root, solve(total, off))
    return Completed(open_.centre + jnp.einsum("nij,nj->ni", open_.root, moved), latent)


class OnLine(NamedTuple):
    """s and p given t: means, variances and covariance."""

    s: Array
    p: Array
    s_variance: Array
    p_variance: Array
    both: Array

    def probit(self, bent: Array, noise: Array) -> tuple[Array, Array]:
        """Mean and variance of p once the outcome, less its bend, is known too."""
        gain = self.both / (self.s_variance + noise)
        return self.p + gain * (bent - self.s), self.p_variance - gain * self.both


def given_index(matters: Matters, index: Float[Array, " n"]) -> OnLine:
    covariance = matters.covariance
    size = covariance[:, T, T] + CERTAIN
    off = (index - matters.mean[:, T]) / size
    left = covariance - covariance[:, :, T, None] * covariance[:, T, None, :] / size[:, None, None]
    s, p = (matters.mean[:, k] + covariance[:, k, T] * off for k in (S, P))
    return OnLine(s, p, jnp.maximum(left[:, S, S], 0.0), jnp.maximum(left[:, P, P], 0.0), left[:, S, P])


def _along_the_line(matters: Matters, seen: Seen, key: Array) -> Float[Array, " n"]:
    """t given all that is known: a grid about what it is a priori, then a finer one."""
    for_grid, for_choice, for_finer, for_last = jax.random.split(key, 4)
    centre = matters.mean[:, T]
    sd = jnp.sqrt(matters.covariance[:, T, T] + CERTAIN)
    step = GRID[1] - GRID[0]

    def weigh(z: Array) -> Array:
        line = given_index(matters, centre + sd * z)
        bent = seen.outcome - seen.curve(centre + sd * z)
        total = line.s_variance + seen.noise
        mean, variance = line.probit(bent, seen.noise)
        explained = -0.5 * ((bent - line.s) ** 2 / total + jnp.log(total))
        return explained + log_probit(seen.sign * mean / jnp.sqrt(1.0 + variance)) - 0.5 * z**2

    def choose(points: Array, key: Array) -> Array:
        logs = jax.vmap(weigh)(points)
        chosen = jnp.argmax(logs + jax.random.gumbel(key, logs.shape), axis=0)
        return points[chosen, jnp.arange(len(centre))]

    coarse = GRID[:, None] + step * jax.random.uniform(for_grid, centre.shape)
    found = choose(coarse, for_choice)
    inside = (jnp.arange(FINER)[:, None] + jax.random.uniform(for_finer, centre.shape)) / FINER - 0.5
    return centre + sd * choose(found + step * inside, for_last)


def log_probit(at: Array) -> Array:
    """log Φ; far out in the tail it goes on as a line, where nobody is."""
    return jnp.log(0.5 * jax.lax.erfc(-jnp.maximum(at, -37.0) * np.sqrt(0.5))) + jnp.minimum(at + 37.0, 0.0)
