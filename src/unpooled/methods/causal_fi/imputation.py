"""Draws of missing confounders at the sites, given everything that is observed of a person.

Missing values enter the model through three linear predictors only: s, their contribution to the outcome's
linear part; t, the index along which the outcome is nonlinear; p, their contribution to the treatment's
probit. Given x, the levels of discrete columns and the observed numbers, the missing numbers are normal, and
so is (s, t, p). Given t, the likelihood of the outcome and the treatment in s and p has a closed form. A draw
therefore takes four steps: propose fillings of the missing levels; weight them jointly with a grid of t and
choose one; draw the probit's latent variable; draw the missing numbers by Gaussian conditioning. There is no
iteration, so a site keeps no state between rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int

from unpooled.maths.normal import choose, given_observed, latent, log_probit, solve
from unpooled.methods.causal_fi.columns import EVENLY, Layout, fill_levels
from unpooled.models.outcome_family import ClosedFamily, Gaussian
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows

GRID = np.linspace(-6.0, 6.0, 33)[:-1]
"""Coarse grid of t, in sds of its distribution given x and the observed values."""
ALONG = 16
"""Values of s per proposal if the outcome has no nonlinear part and is not Gaussian."""
FINER = 16
"""Number of points of the fine grid within the chosen cell of the coarse grid."""
CERTAIN = 1e-10
"""Variance of quantities that are known exactly, such as (s, t, p) of people without missing values."""
GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)
"""Step of a Kronecker sequence, which spreads quasi-random numbers evenly over [0, 1)."""
S, T, P = range(3)
"""Positions of s, t and p."""
CHOICES = 5
"""Uniform numbers per person by which a proposal and t are chosen."""


def random_numbers(numbers: int) -> int:
    """Uniform numbers per person that an imputation takes, if there are so many numeric columns: for levels,
    choices, the latent variable, the missing numbers, and the noise of s, t and p."""
    return 1 + CHOICES + 1 + numbers + 3


class ProposedRows(NamedTuple):
    """Proposals for every person's u under one draw of p(u | x); numbers are centre + root·ε."""

    u: Float[Array, "i n u"]
    """u with proposed levels, and with missing numbers at their conditional mean."""
    log_weight: Float[Array, "i n"]
    """Log importance weight of the proposal before outcome and treatment are taken into account."""
    left: Float[Array, "i n"]
    """A uniform number that is independent of the proposed levels."""
    root: Float[Array, "n u v"]


def propose(
    layout: Layout, confounders: Arrays, rows: Rows, uniforms: Float[Array, "i n"], shift: Array | None
) -> ProposedRows:
    """One proposal for every uniform number."""
    level_positions, numbers = layout.level_positions, layout.numbers
    seen, values = rows.seen[:, numbers], rows.incomplete[:, numbers]
    given = given_observed(confounders["covariance"], seen)

    def proposal(uniform: Array) -> tuple[Array, Array, Array]:
        level = fill_levels(layout, confounders["steps"], rows, uniform, shift)
        known = jnp.concatenate([rows.covariates, level.features], axis=1)
        mean = confounders["intercept"] + known @ confounders["slopes"]
        residual = seen * (values - mean)
        missing = mean + jnp.einsum("nij,nj->ni", given.regression, residual)
        # Squared Mahalanobis distance of the observed numbers given the proposed levels.
        distance = jnp.einsum("ni,nij,nj->n", residual, given.precision, residual)
        u = jnp.zeros_like(rows.incomplete).at[:, level_positions].set(level.features)
        u = u.at[:, numbers].set(jnp.where(seen > 0.0, values, missing))
        return u, level.log_weight - 0.5 * distance, level.left

    root = jnp.zeros((len(seen), rows.incomplete.shape[1], len(numbers))).at[:, numbers].set(given.root)
    return ProposedRows(*jax.vmap(proposal)(uniforms), root)


class Proposals(NamedTuple):
    """(s, t, p) of every person under each proposal; proposals differ in the mean only."""

    mean: Float[Array, "i n 3"]
    """Mean of (s, t, p), including the contributions of x, the observed values and the offsets."""
    log_weight: Float[Array, "i n"]
    left: Float[Array, "i n"]
    """A uniform number that is independent of the proposed levels."""
    root: Float[Array, "n 3 v"]
    """Loadings of (s, t, p) on the standard normal variables behind the missing numbers."""


class Predictors(NamedTuple):
    """The normal distribution of (s, t, p) for every person."""

    mean: Float[Array, "n 3"]
    covariance: Float[Array, "n 3 3"]


class ObservedData(NamedTuple):
    """The observations that inform u in addition to x, and the outcome's nonlinear part."""

    family: ClosedFamily
    outcome: Float[Array, " n"]
    noise: Float[Array, " n"]
    """The noise variance of a number, or the dispersion of a count."""
    sign: Float[Array, " n"]
    """+1 for treated people, −1 for controls."""
    curve: Callable[[Float[Array, " n"]], Float[Array, " n"]] | None
    """None if the outcome is linear; t is then of no consequence."""


class ImputationDraw(NamedTuple):
    """The chosen proposal, the probit's latent variable, and the normals behind the missing numbers."""

    proposal: Int[Array, " n"]
    latent: Float[Array, " n"]
    standard: Float[Array, "n v"]


class GivenIndex(NamedTuple):
    """s and p given t: means, variances and covariance."""

    s: Array
    p: Array
    s_variance: Array
    p_variance: Array
    both: Array

    def probit(self, s: Array, noise: Array | float) -> tuple[Array, Array]:
        """Mean and variance of p given an observation of s with this noise variance."""
        gain = self.both / (self.s_variance + noise)
        return self.p + gain * (s - self.s), self.p_variance - gain * self.both


def complete(proposals: Proposals, observed: ObservedData, uniform: Float[Array, "n r"]) -> ImputationDraw:
    """Draw missing levels and numbers given all observations, by `random_numbers` less the levels' own."""
    covariance = jnp.einsum("niu,nju->nij", proposals.root, proposals.root)
    proposal, predictors, index, z_s = _choose(proposals, covariance, observed, uniform[:, :CHOICES])
    line = given_index(predictors, index)
    s, noise, _ = _outcome_evidence(observed, line, index, z_s)
    mean, variance = line.probit(s, noise)
    drawn = latent(mean, jnp.sqrt(1.0 + variance), observed.sign > 0.0, uniform[:, CHOICES])
    # Matheron's rule: correct a draw from the prior by the residuals of its simulated observations.
    spread = jnp.stack([noise, jnp.full_like(index, CERTAIN), jnp.ones_like(index)], axis=1)
    normal = ndtri(uniform[:, CHOICES + 1 :])
    errors, standard = normal[:, :3], normal[:, 3:]
    simulated = predictors.mean + jnp.einsum("niu,nu->ni", proposals.root, standard)
    simulated = simulated + jnp.sqrt(spread) * errors
    residual = jnp.stack([s, index, drawn], axis=1) - simulated
    total = covariance + jax.vmap(jnp.diag)(spread)
    corrected = standard + jnp.einsum("niu,ni->nu", proposals.root, solve(total, residual))
    return ImputationDraw(proposal, drawn, corrected)


def log_likelihood(proposals: Proposals, observed: ObservedData) -> Float[Array, " n"]:
    """Log likelihood of outcome, treatment and observed numbers where arms are linear and Gaussian.

    There must be a single proposal, whose log weight is that of the observed numbers.
    """
    covariance = jnp.einsum("niu,nju->nij", proposals.root, proposals.root)
    index = proposals.mean[0, :, T]
    line = given_index(Predictors(proposals.mean[0], covariance), index)
    s, noise, explained = _outcome_evidence(observed, line, index, jnp.zeros_like(index))
    mean, variance = line.probit(s, noise)
    treated = log_probit(observed.sign * mean / jnp.sqrt(1.0 + variance))
    return proposals.log_weight[0] + explained + treated


def given_index(predictors: Predictors, index: Float[Array, " n"]) -> GivenIndex:
    """Condition s and p on t."""
    covariance = predictors.covariance
    size = covariance[:, T, T] + CERTAIN
    deviation = (index - predictors.mean[:, T]) / size
    rest = covariance - covariance[:, :, T, None] * covariance[:, T, None, :] / size[:, None, None]
    s, p = (predictors.mean[:, k] + covariance[:, k, T] * deviation for k in (S, P))
    return GivenIndex(s, p, jnp.maximum(rest[:, S, S], 0.0), jnp.maximum(rest[:, P, P], 0.0), rest[:, S, P])


def _outcome_evidence(
    observed: ObservedData, line: GivenIndex, index: Array, z_s: Array
) -> tuple[Array, Array, Array]:
    """A value of s, the variance of its error, and the log weight that the outcome gives to it.

    A Gaussian outcome minus its nonlinear part is a noisy observation of s. For other families s is proposed
    at `z_s` sds from its mean and weighted by the likelihood.
    """
    bend = 0.0 if observed.curve is None else observed.curve(index)
    if isinstance(observed.family, Gaussian):
        s, total = observed.outcome - bend, line.s_variance + observed.noise
        return s, observed.noise, -0.5 * ((s - line.s) ** 2 / total + jnp.log(total))
    s = line.s + jnp.sqrt(line.s_variance) * z_s
    log = observed.family.log_density(observed.outcome, s + bend, observed.noise)
    log = log - 0.5 * (1.0 - EVENLY) * z_s**2
    return s, jnp.full_like(s, CERTAIN), log


def _choose(
    proposals: Proposals, covariance: Array, observed: ObservedData, uniform: Float[Array, "n 5"]
) -> tuple[Int[Array, " n"], Predictors, Array, Array]:
    """Choose a proposal and t given all observations: on a coarse grid of t, then on a fine one.

    Without a nonlinear part t has no influence, and there is no grid.
    """
    for_proposal, for_cell, for_place, for_finer, for_last = uniform.T
    people = jnp.arange(len(covariance))
    sd = jnp.sqrt(covariance[:, T, T] + CERTAIN)
    normal, bends, step = isinstance(observed.family, Gaussian), observed.curve is not None, GRID[1] - GRID[0]
    cells = GRID if bends else np.zeros(1 if normal else ALONG)
    coarse = cells[:, None] + step * for_place * bends
    if normal:
        z_s = jnp.zeros((len(proposals.mean), *coarse.shape))
    else:
        # Each cell has its own quasi-random s, from a distribution wider than its prior.
        turned = proposals.left[:, None] + GOLDEN * jnp.arange(len(coarse))[:, None]
        z_s = ndtri(jnp.clip(turned % 1.0, 1e-9, 1.0 - 1e-9)) / np.sqrt(EVENLY)

    def weigh(mean: Array, z_s: Array, z: Array) -> Array:
        predictors = Predictors(mean, covariance)
        index = mean[:, T] + sd * z
        line = given_index(predictors, index)
        s, noise, explained = _outcome_evidence(observed, line, index, z_s)
        mean, variance = line.probit(s, noise)
        return explained + log_probit(observed.sign * mean / jnp.sqrt(1.0 + variance)) - 0.5 * z**2

    proposal = cell = jnp.zeros(len(people), int)
    if z_s.shape[:2] != (1, 1):
        every = jax.vmap(jax.vmap(weigh, (None, 0, 0)), (0, 0, None))
        weights = _relative(every(proposals.mean, z_s, coarse) + proposals.log_weight[:, None], (0, 1))
        proposal = choose(weights.sum(axis=1), for_proposal)
        cell = choose(weights[proposal, :, people].T, for_cell)
    mean, z_s = proposals.mean[proposal, people], z_s[proposal, cell, people]
    predictors = Predictors(mean, covariance)
    if not bends:
        return proposal, predictors, mean[:, T], z_s
    inside = (jnp.arange(FINER)[:, None] + for_finer) / FINER - 0.5
    finer = coarse[cell, people] + step * inside
    best = choose(_relative(jax.vmap(lambda z: weigh(mean, z_s, z))(finer), 0), for_last)
    return proposal, predictors, mean[:, T] + sd * finer[best, people], z_s


def _relative(logs: Array, axes: int | tuple[int, int]) -> Array:
    """Weights in proportion to exp(logs), of which the largest along the axes is 1."""
    return jnp.exp(logs - jnp.max(logs, axis=axes, keepdims=True))


def shift_of(draw: Arrays, rows: Rows) -> Float[Array, "n u"] | None:
    """Shift of every missing value under the sensitivity analysis; None if values are missing at random."""
    if "shift" not in draw:
        return None
    return draw["shift"][rows.treatment.astype(int)] * (1.0 - rows.seen)


def on_numbers(layout: Layout, shift: Float[Array, "n u"]) -> Float[Array, "n u"]:
    """The shift of numeric columns, which is added to drawn values; levels are drawn with it instead."""
    return jnp.zeros_like(shift).at[:, layout.numbers].set(shift[:, layout.numbers])
