"""Partially pooled means of cells (arm × class): y in cell c of site s has mean θ_sc.

θ_s is a sum of components, each with its own variance: common to all cells, to an arm, to a cell, and the
same again for each site. Numeric outcomes have Gaussian noise. 0/1 outcomes have logits with the quadratic
bound of Jaakkola & Jordan, under which the same linear solve gives a lower bound on the evidence. Counts have
a log link, expanded about the last means (`count_cells`): the solve then gives Laplace's approximation.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths import partial_pooling as pooling
from unpooled.methods.causal_rff.classes import count_cells
from unpooled.models.dispersion import most_probable
from unpooled.models.link import Link

INNER = 3
"""EM steps of the variances per round; they run at the coordinator and need no exchange."""
PRIOR_LEVELS = 2.0
"""Weight of a variance's prior, in terms of the expected size."""


class Component(NamedTuple):
    """Terms with a common variance: design [cells, terms], expected variance, and whether it is learned."""

    columns: np.ndarray
    expected: float
    learned: bool = True


class Cells(eqx.Module):
    """The composition of the cell means. Rows of `common` and `site` are cells, columns are terms."""

    common: Float[Array, "c r"]
    site: Float[Array, "c t"]
    common_of: tuple[int, ...] = eqx.field(static=True)
    site_of: tuple[int, ...] = eqx.field(static=True)
    arm: tuple[int, ...] = eqx.field(static=True)
    """The arm of each cell, which selects its noise variance; unused for 0/1 outcomes."""
    expected: tuple[float, ...] = eqx.field(static=True)
    learned: tuple[bool, ...] = eqx.field(static=True)
    binary: bool = eqx.field(static=True)
    link: Link | None = None
    """The link of counts, whose dispersions take the place of the noise variances."""

    def start(self, sites: int) -> Variances:
        """Starting values: expected variances, and bounds that are tight at even odds or the mean count."""
        return Variances(jnp.asarray(self.expected), jnp.full((sites, len(self.arm)), 1e-3))


class Variances(NamedTuple):
    """Variances of the components and of each arm's noise, and points where the logit bounds are tight.

    For counts, each arm's dispersion, and the points about which the log likelihoods are expanded.
    """

    values: Float[Array, " v"]
    tight: Float[Array, "m c"]


class Counted(NamedTuple):
    """Number of people and sum of outcomes by site and cell, and sum of squared outcomes by arm.

    Of counts, by arm, log densities at the overall mean at given dispersions.
    """

    people: Float[Array, "m c"]
    total: Float[Array, "m c"]
    square: Float[Array, " 2"]
    dispersion: Float[Array, "2 k"] | None = None


class Means(NamedTuple):
    """Posterior mean and variance of every θ_sc, and the cells' contribution to the bound."""

    mean: Float[Array, "m c"]
    variance: Float[Array, "m c"]
    evidence: Float[Array, ""]


def make_cells(
    common: tuple[Component, ...], site: tuple[Component, ...], arm: tuple[int, ...], *, binary: bool,
    link: Link | None = None,
) -> Cells:  # fmt: skip
    """Stack the components, followed by the noise, whose expected variance is 0.3 in standard units.

    For counts the dispersions follow, which start from there.
    """
    of = [np.repeat(i, part.columns.shape[1]) for i, part in enumerate((*common, *site))]
    noise = () if binary else (0.3, 0.3)
    return Cells(
        common=jnp.asarray(np.concatenate([part.columns for part in common], axis=1)),
        site=jnp.asarray(np.concatenate([part.columns for part in site], axis=1)),
        common_of=tuple(np.concatenate(of[: len(common)]).tolist()),
        site_of=tuple(np.concatenate(of[len(common) :]).tolist()),
        arm=arm,
        expected=(*[part.expected for part in (*common, *site)], *noise),
        learned=(*[part.learned for part in (*common, *site)], *[link is None for _ in noise]),
        binary=binary,
        link=link,
    )


def improve(cells: Cells, active: Array, counted: Counted, variances: Variances) -> tuple[Variances, Means]:
    """A few EM steps of the variances, then solve. `active` [c] is 0 for cells of unused classes."""
    levels = _levels(cells, active, counted)

    def step(_: int, now: Variances) -> Variances:
        values = pooling.expectation_step(
            lambda values: _evidence(cells, active, counted, Variances(values, now.tight)), now.values, levels
        )
        if not cells.binary and cells.link is None:
            return Variances(values, now.tight)
        found = solve(cells, active, counted, Variances(values, now.tight))
        if cells.link is not None:
            dispersion = most_probable(log_dispersions(cells, counted, found.mean, found.variance))
            tight = count_cells.moved(cells.link, now.tight, found.mean)
            return Variances(values.at[-2:].set(dispersion), tight)
        return Variances(values, jnp.sqrt(found.mean**2 + found.variance))

    variances = jax.lax.fori_loop(0, INNER, step, variances)
    return variances, solve(cells, active, counted, variances)


def solve(cells: Cells, active: Array, counted: Counted, variances: Variances) -> Means:
    """The posterior of θ given the variances."""
    prior = prior_of(cells, active, variances.values)
    fitted = pooling.posterior(sums_of(*precision(cells, counted, variances)), prior)
    found = pooling.coefficients(fitted, prior)
    every = jnp.eye(len(cells.arm))
    spread = pooling.variances(fitted, prior, every, every)
    evidence = fitted.log_evidence + _beyond_solve(cells, counted, variances)
    return Means(found.common + found.site, spread, evidence)


def prior_of(cells: Cells, active: Array, values: Array) -> pooling.PoolingPrior:
    """The Gaussian prior of common and site terms."""
    root = jnp.sqrt(values)
    return pooling.PoolingPrior(
        active[:, None] * cells.common * root[np.array(cells.common_of)],
        active[:, None] * cells.site * root[np.array(cells.site_of)],
    )


def sums_of(weight: Float[Array, "m c"], score: Float[Array, "m c"]) -> pooling.PoolingSums:
    """The sums of the pooled regression; diagonal, because the cells are disjoint."""
    diagonal = jax.vmap(jnp.diag)(weight)
    return pooling.PoolingSums(jnp.diag(weight.sum(axis=0)), score.sum(axis=0), diagonal, diagonal, score)


def precision(cells: Cells, counted: Counted, variances: Variances) -> tuple[Array, Array]:
    """The Gaussian likelihood of θ by site and cell: precision, and precision times mean."""
    if cells.binary:
        return 2.0 * slope(variances.tight) * counted.people, counted.total - 0.5 * counted.people
    if cells.link is not None:
        found = expansion(cells, counted, variances)
        return found.weight, found.score
    noise = variances.values[-2:][np.array(cells.arm)]
    return counted.people / noise, counted.total / noise


def expansion(cells: Cells, counted: Counted, variances: Variances) -> count_cells.Expansion:
    """Of counts: the log likelihood of θ by site and cell, expanded about the points in `tight`."""
    assert cells.link is not None
    dispersion = variances.values[-2:][np.array(cells.arm)]
    return count_cells.expanded(cells.link, counted.people, counted.total, variances.tight, dispersion)


def log_dispersions(cells: Cells, counted: Counted, mean: Array, variance: Array) -> Float[Array, "2 k"]:
    """Of counts: the expected log likelihood of each arm's dispersion on a grid."""
    assert cells.link is not None and counted.dispersion is not None
    return count_cells.log_dispersions(
        cells.link, counted.people, counted.total, mean, variance, counted.dispersion
    )


def slope(tight: Array) -> Array:
    """λ(ξ) = tanh(ξ/2)/4ξ: the coefficient of the quadratic bound that is tight at ±ξ."""
    safe = jnp.maximum(tight, 1e-6)
    return jnp.tanh(0.5 * safe) / (4.0 * safe)


def log_chance(mean: Array, variance: Array, tight: Array, sign: float) -> Array:
    """The bound on E log p(y | θ) for y = 1 (sign +1) or 0 (sign −1)."""
    beyond = slope(tight) * (mean**2 + variance - tight**2)
    return jax.nn.log_sigmoid(tight) + 0.5 * (sign * mean - tight) - beyond


def _levels(cells: Cells, active: Array, counted: Counted) -> Array:
    """The number of terms with each variance; infinite if it is not learned, which keeps it constant."""
    sites = counted.people.shape[0]
    sizes = []
    for index, learned in enumerate(cells.learned):
        mine = [np.array(cells.common_of) == index, np.array(cells.site_of) == index]
        used = [jnp.any(part * active[:, None] != 0.0, axis=0) for part in (cells.common, cells.site)]
        terms = jnp.sum(used[0] * mine[0]) + sites * jnp.sum(used[1] * mine[1])
        sizes.append(terms + PRIOR_LEVELS if learned else jnp.inf)
    levels = jnp.stack([jnp.asarray(size, float) for size in sizes])
    if cells.binary or cells.link is not None:
        return levels
    return levels.at[-2:].add(people_by_arm(cells, counted))


def people_by_arm(cells: Cells, counted: Counted) -> Float[Array, " 2"]:
    return jnp.stack([jnp.sum(counted.people * (np.array(cells.arm) == arm)) for arm in (0, 1)])


def _evidence(cells: Cells, active: Array, counted: Counted, variances: Variances) -> Array:
    """Log evidence of the outcomes given their cells, plus the log prior of the variances."""
    sums = sums_of(*precision(cells, counted, variances))
    found = pooling.posterior(sums, prior_of(cells, active, variances.values))
    return found.log_evidence + _beyond_solve(cells, counted, variances)


def _beyond_solve(cells: Cells, counted: Counted, variances: Variances) -> Array:
    """Terms of the log evidence that do not depend on θ, plus the log prior of the variances."""
    known = log_prior(cells, variances.values)
    if cells.link is not None and counted.dispersion is not None:
        level = jnp.sum(expansion(cells, counted, variances).level)
        return known + level + count_cells.log_rest(counted.dispersion, variances.values[-2:])
    if not cells.binary:
        return known + log_noise(cells, counted, variances.values)
    tight = variances.tight
    touching = jax.nn.log_sigmoid(tight) - 0.5 * tight + slope(tight) * tight**2
    return known + jnp.sum(counted.people * touching)


def log_prior(cells: Cells, values: Array) -> Array:
    """Log prior of the variances: inverse gamma with the weight of `PRIOR_LEVELS` terms."""
    size = jnp.log(values) + jnp.asarray(cells.expected) / values
    return -0.5 * PRIOR_LEVELS * jnp.sum(jnp.where(jnp.asarray(cells.learned), size, 0.0))


def log_noise(cells: Cells, counted: Counted, values: Array) -> Array:
    """Terms of the Gaussian log evidence that depend on the noise only."""
    noise = values[-2:]
    by_arm = people_by_arm(cells, counted)
    return -0.5 * jnp.sum(by_arm * jnp.log(2.0 * jnp.pi * noise) + counted.square / noise)
