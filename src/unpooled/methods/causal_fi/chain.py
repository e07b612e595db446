"""The Markov chain of CausalFI at the coordinator: its state, its start, and one update from the sites' sums.

An update draws the regression of the numeric confounders, the sequential probits of the discrete ones, the
treatment's probit, the linearised outcome regressions with partially pooled site offsets, all variances, and
the dispersion of a count.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float, Int

from unpooled.maths import partial_pooling as pooling
from unpooled.maths.covariance import Wishart, draw_factors
from unpooled.maths.linear_algebra import unpack
from unpooled.maths.mcmc import NormalTerms, draw_variances
from unpooled.methods.causal_fi import collapsed
from unpooled.methods.causal_fi.columns import CURVE, Layout, allowed, asked_of_all
from unpooled.methods.causal_fi.dispersion import draw_dispersion
from unpooled.methods.causal_fi.structures import DIRECTION, EXPECTED, LEARNED, SLOPES
from unpooled.models.outcome_family import ClosedFamily, NegativeBinomial
from unpooled.protocol.records import Arrays

OFFSET = 0.003
"""Prior expectation of the variance of the site offsets."""
SPREAD, TOTAL_SPREAD = 0.3, 6.0
"""Prior expectation of the variance of a probit's slopes, and of their sum of squares if they are few."""
TOTAL_SLOPES = 0.5
"""Prior expectation of the sum of squares of the slopes that both arms share."""
INTERCEPT_PRECISION = 0.1
"""Prior precision of a probit's intercept."""
NOISE = 0.1
"""Prior expectation of the outcome's noise variance."""
LEAST_SPREAD = 0.1
"""Prior expectation of each number's variance given x and the other numbers."""
FIXED = 1e8
"""Prior precision of a coefficient that is fixed at zero."""
FURTHEST = 1.0
"""Maximum step of the mode per round, in prior sds of the nonlinear coefficients."""
REPEATED, MOST_REPEATED = 2.0, 40.0
"""Updates per round: this number over the share of people whose value is not redrawn, and the maximum."""


class Chain(NamedTuple):
    """The state of a chain."""

    confounders: Arrays
    treatment: Float[Array, " p"]
    spreads: Float[Array, " k"]
    """Variances of the slopes of the treatment's probit and of each step."""
    outcome: Float[Array, "2 b"]
    """Drawn coefficients of the outcome."""
    mode: Float[Array, "2 b"]
    """Coefficients about which the outcome model is linearised."""
    bend: Float[Array, " 2"]
    offset: Float[Array, "m 2"]
    mode_offset: Float[Array, "m 2"]
    noise: Float[Array, " 2"]
    """Noise variance of a number, or dispersion of a count, in each arm; 1 for a 0/1 outcome."""
    variances: Float[Array, "2 g"]
    common: Float[Array, ""]
    """Variance of the component that the slopes of both arms share."""
    site: Float[Array, " 2"]


class Setting(eqx.Module):
    """Values shared by all chains of a structure."""

    layout: Layout
    family: ClosedFamily
    groups: Int[Array, " b"]
    """Variance group of each coefficient of the outcome."""
    several: bool = eqx.field(static=True)
    """Whether there is more than one site, so that offsets are identified."""
    column: Int[Array, ""]
    """Position among u of the column that is redrawn at the coordinator; see `collapsed`."""


class Sizes(NamedTuple):
    """Numbers of covariates, of features of incomplete confounders, and of sites."""

    covariates: int
    incomplete: int
    sites: int

    @property
    def all(self) -> int:
        """Length of g = (1, x, u)."""
        return 1 + self.covariates + self.incomplete


def expected_spread(slopes: Array | float) -> Array:
    """Prior expectation of the variance of a probit's slopes, which is larger if they are few.

    With a small one, a single strong confounder would be shrunk, and with it the confounding that is adjusted
    for; see docs/decisions/0022-priors-and-few-observed-values.md.

    >>> [round(float(expected_spread(slopes)), 2) for slopes in (2, 25)]
    [3.0, 0.3]
    """
    return jnp.maximum(SPREAD, TOTAL_SPREAD / jnp.maximum(slopes, 1.0))


def expected_common(slopes: int) -> float:
    """Prior expectation of the variance of the slopes that both arms share.

    >>> expected_common(2), expected_common(25)
    (0.25, 0.02)
    """
    return TOTAL_SLOPES / max(slopes, 1)


def begin(sizes: Sizes, layout: Layout, family: ClosedFamily) -> Chain:
    """The initial state: zero coefficients, prior variances and a linear outcome."""
    outcome = jnp.zeros((2, sizes.all)).at[:, 0].set(family.start())
    offsets, numbers = jnp.zeros((sizes.sites, 2)), len(layout.numbers)
    steps = allowed(layout, sizes.covariates).shape
    return Chain(
        confounders={
            "steps": jnp.zeros(steps),
            "intercept": jnp.zeros(numbers),
            "slopes": jnp.zeros((sizes.covariates + len(layout.level_positions), numbers)),
            "covariance": jnp.eye(numbers),
        },
        treatment=jnp.zeros(sizes.all),
        spreads=jnp.full(1 + steps[0], SPREAD),
        outcome=outcome,
        mode=outcome,
        bend=jnp.ones(2),
        offset=offsets,
        mode_offset=offsets,
        noise=jnp.ones(2),
        variances=jnp.tile(jnp.asarray(EXPECTED), (2, 1)),
        common=jnp.asarray(expected_common(sizes.all - 1)),
        site=jnp.full(2, OFFSET),
    )


def advance(leaves: tuple[Chain, Arrays, Array], setting: Setting) -> Chain:
    """Update all parameters, given the sites' sums.

    If the sums hold those of a column that can be redrawn, parameters and column are updated in turn, more
    often the more of the column is missing.
    """
    chain, sums, key = leaves
    sums = {**sums, "confounders": unpack(sums["confounders"]), "outcome": unpack(sums["outcome"])}
    key = jax.random.wrap_key_data(key)
    if "redrawn" not in sums:
        return _update(chain, sums, setting, key)[0]
    size = len(sums["confounders"])
    position = size - len(setting.layout.mean) + setting.column
    redrawn = collapsed.redrawn_of(sums, position)
    left_out = 1.0 - redrawn.people.sum() / sums["confounders"][0, 0]
    repeated = jnp.ceil(jnp.minimum(REPEATED / jnp.maximum(left_out, 1e-3), MOST_REPEATED))
    count = jnp.where(redrawn.people.sum() > 0.0, repeated, 1.0).astype(int)

    def step(number: Array, now: tuple[Chain, Arrays, collapsed.Redrawn]) -> tuple:
        chain, sums, redrawn = now
        for_update, for_column = jax.random.split(jax.random.fold_in(key, number))
        chain, scale = _update(chain, sums, setting, for_update)
        sums, redrawn = collapsed.scaled(sums, redrawn, scale)
        outcome = chain.outcome[:, :size]
        found = collapsed.Regressions(chain.confounders, chain.treatment, outcome, chain.offset, chain.noise)
        drawn = collapsed.redraw(found, redrawn, setting.layout, position, for_column)
        return chain, collapsed.moved(sums, redrawn, drawn), drawn

    return jax.lax.fori_loop(0, count, step, (chain, sums, redrawn))[0]


def _update(chain: Chain, sums: Arrays, setting: Setting, key: Array) -> tuple[Chain, Array]:
    """One update of all parameters, and the factor by which it has multiplied the treatment's latents."""
    parts = jax.random.split(key, 8)
    for_u, for_w, for_steps, for_common, for_variances, for_scale, *for_y = parts
    gram = sums["confounders"]
    products = unpack(sums["treatment_products"]) if "treatment_products" in sums else gram
    all_ = jnp.ones(len(gram), bool)
    scale = draw_scale(products, sums["treatment"], sums["treatment_square"], chain.spreads[0], for_scale)
    treatment = draw_probit(products, scale * sums["treatment"], chain.spreads[0], all_, for_w)
    steps = draw_steps(gram, sums["steps"], chain.spreads[1:], setting.layout, for_steps)
    common = _common(chain, setting.groups, for_common)
    arms, terms = jax.vmap(partial(_outcome, setting, common))(
        _by_arm(chain, sums, setting.family), jnp.stack(for_y)
    )
    squares, counts = (jnp.append(treatment[part], steps[part]) for part in (1, 2))
    terms["spreads"] = NormalTerms(squares, counts, expected_spread(counts))
    terms["common"] = NormalTerms(jnp.sum(common**2), len(gram) - 1.0, expected_common(len(gram) - 1))
    drawn = draw_variances(terms, for_variances)
    if isinstance(setting.family, NegativeBinomial):
        noise = draw_dispersion(sums["dispersion"], jax.random.fold_in(for_variances, 1))
    else:
        noise = drawn["noise"] if setting.family.learns_noise else chain.noise
    first = len(gram) - len(setting.layout.mean)
    given = setting.layout.before_numbers(first)
    order = np.concatenate([given, first + setting.layout.numbers])
    found = chain._replace(
        confounders={"steps": steps.coefficients, **draw_numbers(gram[order][:, order], len(given), for_u)},
        treatment=treatment.coefficients,
        spreads=drawn["spreads"],
        common=drawn["common"],
        outcome=arms["outcome"],
        mode=arms["mode"],
        offset=arms["offset"].T,
        mode_offset=arms["mode_offset"].T,
        noise=noise,
        variances=jnp.where(jnp.asarray(LEARNED), drawn["variances"], jnp.asarray(EXPECTED)),
        site=drawn["site"],
    )
    return found, scale


def draw_numbers(gram: Float[Array, "p p"], size: int, key: Array) -> Arrays:
    """Draw the regression of the numeric confounders from its matrix-normal inverse-Wishart posterior."""
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
    scale = gram[size:, size:] - white.T @ white + LEAST_SPREAD * (width + 2) * jnp.eye(width)
    draws = draw_factors(Wishart(jnp.eye(width), width + 2 + count), for_covariance, 1)[0]
    spread = jnp.linalg.cholesky(scale) @ jsl.solve_triangular(draws, jnp.eye(width), lower=True).T
    noise = jax.random.normal(for_slopes, white.shape) @ spread.T
    found = pooling.back(root, white + noise)
    return {"intercept": found[0], "slopes": found[1:], "covariance": spread @ spread.T}


class ProbitDraw(NamedTuple):
    """Coefficients of a probit, with the sum of squares and the number of its slopes."""

    coefficients: Array
    squares: Array
    number: Array


def draw_steps(gram: Array, sums: Arrays, spreads: Array, layout: Layout, key: Array) -> ProbitDraw:
    """Draw the coefficients of the sequential probits of all discrete columns."""
    if not len(spreads):
        return ProbitDraw(sums["score"], spreads, spreads)
    first = len(gram) - len(layout.mean)
    given = layout.before_numbers(first)
    common = jnp.pad(gram[given][:, given], (0, CURVE))
    own, everybody = iter(unpack(sums["gram"])), asked_of_all(layout)
    products = jnp.stack([common if all_ else next(own) for all_ in everybody])
    free = jnp.asarray(allowed(layout, first - 1))
    keys = jax.random.split(key, len(spreads))
    return jax.vmap(draw_probit)(products, sums["score"], spreads, free, keys)


def draw_scale(gram: Array, score: Array, square: Array, variance: Array, key: Array) -> Array:
    """Draw the common factor of all latents of a probit, with the coefficients integrated out.

    The signs of the latents do not restrict their scale, but given the scale the coefficients hardly move.
    Multiplying all latents by c and drawing c from its conditional distribution, c² ~ χ²_n/Q with Q the
    latents' squared Mahalanobis length, is parameter-expanded data augmentation (Liu & Wu 1999).
    """
    root = jnp.linalg.cholesky(gram + jnp.diag(_probit_prior(jnp.ones(len(gram), bool), variance)))
    length = square - jnp.sum(pooling.forward(root, score) ** 2)
    return jnp.sqrt(2.0 * jax.random.gamma(key, 0.5 * gram[0, 0]) / length)


def _probit_prior(free: Array, variance: Array) -> Array:
    """Prior precision of a probit's coefficients."""
    return jnp.where(free, 1.0 / variance, FIXED).at[0].set(INTERCEPT_PRECISION)


def draw_probit(gram: Array, score: Array, variance: Array, free: Array, key: Array) -> ProbitDraw:
    """Draw a probit's coefficients given its latent variables; those that are not `free` are zero."""
    root = jnp.linalg.cholesky(gram + jnp.diag(_probit_prior(free, variance)))
    white = pooling.forward(root, score) + jax.random.normal(key, score.shape)
    found = jnp.where(free, pooling.back(root, white), 0.0)
    return ProbitDraw(found, jnp.sum(found[1:] ** 2), jnp.sum(free) - 1.0)


class _Arm(NamedTuple):
    """Sums and current parameters of one arm of the outcome regression."""

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


def _by_arm(chain: Chain, sums: Arrays, family: ClosedFamily) -> _Arm:
    """Collect sums and parameters with the arm as the leading axis."""
    # The working weights of other families hold their variance already.
    noise = chain.noise if family.learns_noise else jnp.ones(2)
    return _Arm(
        sums["outcome"], sums["score"], sums["square"], sums["people"].T,
        jnp.swapaxes(sums["site_cross"], 0, 1), sums["site_score"].T, chain.mode, noise,
        chain.variances, chain.site,
    )  # fmt: skip


def _common(chain: Chain, groups: Array, key: Array) -> Array:
    """Draw the component that the slopes of both arms share; zero for other coefficients."""
    slopes, own = groups == SLOPES, chain.variances[:, SLOPES, None]
    precision = 1.0 / chain.common + jnp.sum(1.0 / own)
    mean = jnp.sum(chain.outcome / own, axis=0) / precision
    drawn = mean + jax.random.normal(key, mean.shape) / jnp.sqrt(precision)
    return jnp.where(slopes, drawn, 0.0)


def _outcome(setting: Setting, common: Array, arm: _Arm, key: Array) -> tuple[Arrays, dict[str, NormalTerms]]:
    """Draw coefficients and offsets of one arm exactly; return them and the terms of each variance."""
    groups = setting.groups
    scale = jnp.sqrt(arm.variances[groups])
    prior = pooling.PoolingPrior(jnp.diag(scale), jnp.sqrt(arm.site * setting.several).reshape(1, 1))
    weight = 1.0 / arm.noise
    sums = pooling.PoolingSums(
        weight * arm.gram, weight * (arm.score - arm.gram @ common), weight * arm.people[:, None, None],
        weight * arm.cross[:, None, :], weight * (arm.site_score - arm.cross @ common)[:, None],
    )  # fmt: skip
    fitted = pooling.posterior(sums, prior)
    mean, drawn = pooling.coefficients(fitted, prior), pooling.coefficients(fitted, prior, key)
    step = mean.common + common - arm.mode
    far = jnp.max(jnp.where(groups >= DIRECTION, jnp.abs(step) / scale, 0.0))
    mode = arm.mode + step / jnp.maximum(1.0, far / FURTHEST)
    offset = drawn.site[:, 0]
    squares = _squares(arm, drawn.common + common, offset)
    found = mode + drawn.common - mean.common
    totals = jnp.zeros(len(EXPECTED)).at[groups].add((found - common) ** 2)
    levels = jnp.zeros(len(EXPECTED)).at[groups].add(1.0)
    terms = {
        "noise": NormalTerms(squares, arm.people.sum(), NOISE),
        "variances": NormalTerms(totals, levels, jnp.asarray(EXPECTED)),
        "site": NormalTerms(jnp.sum(offset**2), float(len(offset)), OFFSET),
    }
    return {"outcome": found, "mode": mode, "offset": offset, "mode_offset": mean.site[:, 0]}, terms


def _squares(arm: _Arm, coefficients: Array, offset: Array) -> Array:
    """The residual sum of squares Σ (response − slopesᵀβ − offset)², from the sums."""
    found = arm.square - 2.0 * (coefficients @ arm.score + offset @ arm.site_score)
    found = found + coefficients @ arm.gram @ coefficients + 2.0 * offset @ (arm.cross @ coefficients)
    return jnp.maximum(found + arm.people @ offset**2, 1e-9)
