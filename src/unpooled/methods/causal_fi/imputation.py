"""Missing confounders drawn beside the rows, so that they fit all that is known of a person.

What is missing matters through three numbers only: s, what it adds to the outcome linearly; t, the index
along which the outcome bends; p, what it adds to the treatment's probit. Given x, the levels and what is
seen, the numbers among u are normal, and so are (s, t, p). Given t, what outcome and treatment say of s and p
is in closed form. So ways to fill the levels and points along t are weighed together; then come the probit's
latent, and u given these by Gaussian conditioning. Nothing is iterated: a site keeps nothing between rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from unpooled.maths.normal import given_seen, latent, log_probit, solve
from unpooled.methods.causal_fi.columns import EVENLY, Layout, fill_levels
from unpooled.models.outcome_family import ClosedFamily, Gaussian
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows

GRID = np.linspace(-6.0, 6.0, 33)[:-1]
"""Where t is looked for, in sds of what it is given x and what is seen; then finer about what was chosen."""
FINER = 16
CERTAIN = 1e-10
"""Variance of what is known: people with nothing missing, or an outcome without a bend, are no exception."""
GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)
"""A turn that never comes back to where it was."""
S, T, P = range(3)


class Ways(NamedTuple):
    """Ways to fill the levels of every person, alike but for where (s, t, p) are centred."""

    mean: Float[Array, "i n 3"]
    """(s, t, p), all else that goes into outcome, index and probit included."""
    log_weight: Float[Array, "i n"]
    left: Float[Array, "i n"]
    """A number between 0 and 1 that goes with the way."""
    root: Float[Array, "n 3 v"]
    """How (s, t, p) follow from what varies beside the levels."""


class Matters(NamedTuple):
    """(s, t, p) of every person, normal."""

    mean: Float[Array, "n 3"]
    covariance: Float[Array, "n 3 3"]


class Seen(NamedTuple):
    """What tells of u beside x: outcome, its noise, the treatment's sign, and how the outcome bends."""

    family: ClosedFamily
    outcome: Float[Array, " n"]
    noise: Float[Array, " n"]
    sign: Float[Array, " n"]
    curve: Callable[[Float[Array, " n"]], Float[Array, " n"]]


class ImputationDraw(NamedTuple):
    """The way chosen, the probit's latent, and what varies beside the levels as standard normal numbers."""

    way: Array
    latent: Float[Array, " n"]
    standard: Float[Array, "n v"]


class OnLine(NamedTuple):
    """s and p given t: means, variances and covariance."""

    s: Array
    p: Array
    s_variance: Array
    p_variance: Array
    both: Array

    def probit(self, bent: Array, noise: Array | float) -> tuple[Array, Array]:
        """Mean and variance of p once the outcome, less its bend, is known too."""
        gain = self.both / (self.s_variance + noise)
        return self.p + gain * (bent - self.s), self.p_variance - gain * self.both


def complete(ways: Ways, seen: Seen, key: Array) -> ImputationDraw:
    """Levels and numbers given everything that is known."""
    for_line, for_latent, for_u, for_noise = jax.random.split(key, 4)
    covariance = jnp.einsum("niu,nju->nij", ways.root, ways.root)
    way, matters, index, along = _along_the_line(ways, covariance, seen, for_line)
    line = given_index(matters, index)
    bent, noise, _ = _told(seen, line, index, along)
    mean, variance = line.probit(bent, noise)
    said_yes = latent(mean, jnp.sqrt(1.0 + variance), seen.sign > 0.0, for_latent)
    # Matheron's rule: a draw that knows nothing, moved by how far what it says is from what was seen.
    spread = jnp.stack([noise, jnp.full_like(index, CERTAIN), jnp.ones_like(index)], axis=1)
    standard = jax.random.normal(for_u, (len(index), ways.root.shape[2]))
    said = matters.mean + jnp.einsum("niu,nu->ni", ways.root, standard)
    said = said + jnp.sqrt(spread) * jax.random.normal(for_noise, spread.shape)
    off = jnp.stack([bent, index, said_yes], axis=1) - said
    total = covariance + jax.vmap(jnp.diag)(spread)
    moved = standard + jnp.einsum("niu,ni->nu", ways.root, solve(total, off))
    return ImputationDraw(way, said_yes, moved)


def given_index(matters: Matters, index: Float[Array, " n"]) -> OnLine:
    covariance = matters.covariance
    size = covariance[:, T, T] + CERTAIN
    off = (index - matters.mean[:, T]) / size
    left = covariance - covariance[:, :, T, None] * covariance[:, T, None, :] / size[:, None, None]
    s, p = (matters.mean[:, k] + covariance[:, k, T] * off for k in (S, P))
    return OnLine(s, p, jnp.maximum(left[:, S, S], 0.0), jnp.maximum(left[:, P, P], 0.0), left[:, S, P])


def _told(seen: Seen, line: OnLine, index: Array, along: Array) -> tuple[Array, Array, Array]:
    """What the outcome says of s: a value, how uncertain it is, and how likely the outcome is by it.

    A number tells s up to its noise. Any other outcome is weighed where s is `along` sds from its mean.
    """
    bend = seen.curve(index)
    if isinstance(seen.family, Gaussian):
        bent, total = seen.outcome - bend, line.s_variance + seen.noise
        return bent, seen.noise, -0.5 * ((bent - line.s) ** 2 / total + jnp.log(total))
    s = line.s + jnp.sqrt(line.s_variance) * along
    log = seen.family.log_density(seen.outcome, s + bend) - 0.5 * (1.0 - EVENLY) * along**2
    return s, jnp.full_like(s, CERTAIN), log


def _along_the_line(
    ways: Ways, covariance: Array, seen: Seen, key: Array
) -> tuple[Array, Matters, Array, Array]:
    """A way and t, given all that is known: a grid about what t is a priori, then a finer one."""
    for_grid, for_choice, for_finer, for_last = jax.random.split(key, 4)
    people = jnp.arange(len(covariance))
    sd = jnp.sqrt(covariance[:, T, T] + CERTAIN)
    # Every point of the grid goes with another s; those far out are tried more often than they are likely.
    turned = ways.left[:, None] + GOLDEN * jnp.arange(len(GRID))[:, None]
    along = ndtri(jnp.clip(turned % 1.0, 1e-9, 1.0 - 1e-9)) / np.sqrt(EVENLY)
    step = GRID[1] - GRID[0]

    def weigh(mean: Array, along: Array, z: Array) -> Array:
        matters = Matters(mean, covariance)
        index = mean[:, T] + sd * z
        line = given_index(matters, index)
        bent, noise, explained = _told(seen, line, index, along)
        mean, variance = line.probit(bent, noise)
        return explained + log_probit(seen.sign * mean / jnp.sqrt(1.0 + variance)) - 0.5 * z**2

    every = jax.vmap(jax.vmap(weigh, (None, 0, 0)), (0, 0, None))
    coarse = GRID[:, None] + step * jax.random.uniform(for_grid, people.shape)
    logs = (every(ways.mean, along, coarse) + ways.log_weight[:, None]).reshape(-1, len(people))
    chosen = jnp.argmax(logs + jax.random.gumbel(for_choice, logs.shape), axis=0)
    way, cell = chosen // len(GRID), chosen % len(GRID)
    mean, along = ways.mean[way, people], along[way, cell, people]
    inside = (jnp.arange(FINER)[:, None] + jax.random.uniform(for_finer, people.shape)) / FINER - 0.5
    finer = coarse[cell, people] + step * inside
    logs = jax.vmap(lambda z: weigh(mean, along, z))(finer)
    best = jnp.argmax(logs + jax.random.gumbel(for_last, logs.shape), axis=0)
    return way, Matters(mean, covariance), mean[:, T] + sd * finer[best, people], along


class Open(NamedTuple):
    """Ways to complete every person under one draw of p(u | x): numbers are centre + root·ε."""

    u: Float[Array, "i n u"]
    """Levels filled, numbers at their centre."""
    log_weight: Float[Array, "i n"]
    left: Float[Array, "i n"]
    root: Float[Array, "n u v"]


def open_up(
    layout: Layout, confounders: Arrays, rows: Rows, spots: Float[Array, "i n"], shift: Array | None
) -> Open:
    """A way for every spot between 0 and 1."""
    levelled, numbers = layout.levelled, layout.numbers
    seen, values = rows.seen[:, numbers], rows.incomplete[:, numbers]
    given = given_seen(confounders["covariance"], seen)

    def way(spot: Array) -> tuple[Array, Array, Array]:
        level = fill_levels(layout, confounders["steps"], rows, spot, shift)
        known = jnp.concatenate([rows.covariates, level.features], axis=1)
        mean = confounders["intercept"] + known @ confounders["slopes"]
        beyond = seen * (values - mean)
        missing = mean + jnp.einsum("nij,nj->ni", given.regression, beyond)
        # How likely the numbers seen are by these levels.
        surprise = jnp.einsum("ni,nij,nj->n", beyond, given.precision, beyond)
        u = jnp.zeros_like(rows.incomplete).at[:, levelled].set(level.features)
        u = u.at[:, numbers].set(jnp.where(seen > 0.0, values, missing))
        return u, level.log_weight - 0.5 * surprise, level.left

    root = jnp.zeros((len(seen), rows.incomplete.shape[1], len(numbers))).at[:, numbers].set(given.root)
    return Open(*jax.vmap(way)(spots), root)


def shift_of(draw: Arrays, rows: Rows) -> Float[Array, "n u"] | None:
    """How much more than at random everybody's missing values are, by arm; None where they are at random."""
    if "shift" not in draw:
        return None
    return draw["shift"][rows.treatment.astype(int)] * (1.0 - rows.seen)


def on_numbers(layout: Layout, shift: Float[Array, "n u"]) -> Float[Array, "n u"]:
    """Numbers that are missing are felt to be larger by so much; levels are drawn so."""
    return jnp.zeros_like(shift).at[:, layout.numbers].set(shift[:, layout.numbers])
