"""The Markov chains of CausalFI at the coordinator: their state, their start, and an update from sites' sums.

An update draws the regression of the numeric confounders, the sequential probits of the discrete ones, the
treatment's probit, the linearised outcome regressions with partially pooled site offsets, all variances, and
the dispersion of a count. It is small linear algebra with many random numbers, and is computed by NumPy for
all chains at once: compiling it would take longer than all updates of a fit
(docs/decisions/0024-compilation.md). The leading axis of all arrays is the chain, c.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from unpooled.errors import FitError
from unpooled.maths.linear_algebra import unpack
from unpooled.maths.mcmc import NormalTerms, draw_variances
from unpooled.methods.causal_fi import collapsed
from unpooled.methods.causal_fi.columns import CURVE, Layout, allowed, asked_of_all
from unpooled.methods.causal_fi.structures import DIRECTION, EXPECTED, LEARNED, SLOPES
from unpooled.models.dispersion import draw_dispersion
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
    """The state of a chain or, with a leading axis, of several."""

    confounders: Arrays
    treatment: Float[np.ndarray, " p"]
    spreads: Float[np.ndarray, " k"]
    """Variances of the slopes of the treatment's probit and of each step."""
    outcome: Float[np.ndarray, "2 b"]
    """Drawn coefficients of the outcome."""
    mode: Float[np.ndarray, "2 b"]
    """Coefficients about which the outcome model is linearised."""
    bend: Float[np.ndarray, " 2"]
    offset: Float[np.ndarray, "m 2"]
    mode_offset: Float[np.ndarray, "m 2"]
    noise: Float[np.ndarray, " 2"]
    """Noise variance of a number, or dispersion of a count, in each arm; 1 for a 0/1 outcome."""
    variances: Float[np.ndarray, "2 g"]
    common: Float[np.ndarray, ""]
    """Variance of the component that the slopes of both arms share."""
    site: Float[np.ndarray, " 2"]


class Setting(NamedTuple):
    """Values shared by all chains of a structure."""

    layout: Layout
    family: ClosedFamily
    groups: Int[np.ndarray, " b"]
    """Variance group of each coefficient of the outcome."""
    several: bool
    """Whether there is more than one site, so that offsets are identified."""
    column: int
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


def expected_spread(slopes: np.ndarray | float) -> np.ndarray:
    """Prior expectation of the variance of a probit's slopes, which is larger if they are few.

    With a small one, a single strong confounder would be shrunk, and with it the confounding that is adjusted
    for; see docs/decisions/0022-priors-and-few-observed-values.md.

    >>> [round(float(expected_spread(slopes)), 2) for slopes in (2, 25)]
    [3.0, 0.3]
    """
    return np.maximum(SPREAD, TOTAL_SPREAD / np.maximum(slopes, 1.0))


def expected_common(slopes: int) -> float:
    """Prior expectation of the variance of the slopes that both arms share.

    >>> expected_common(2), expected_common(25)
    (0.25, 0.02)
    """
    return TOTAL_SLOPES / max(slopes, 1)


def begin(sizes: Sizes, layout: Layout, family: ClosedFamily) -> Chain:
    """The initial state of one chain: zero coefficients, prior variances and a linear outcome."""
    outcome = np.zeros((2, sizes.all))
    outcome[:, 0] = family.start()
    offsets, numbers = np.zeros((sizes.sites, 2)), len(layout.numbers)
    steps = allowed(layout, sizes.covariates).shape
    return Chain(
        confounders={
            "steps": np.zeros(steps),
            "intercept": np.zeros(numbers),
            "slopes": np.zeros((sizes.covariates + len(layout.level_positions), numbers)),
            "covariance": np.eye(numbers),
        },
        treatment=np.zeros(sizes.all),
        spreads=np.full(1 + steps[0], SPREAD),
        outcome=outcome,
        mode=outcome,
        bend=np.ones(2),
        offset=offsets,
        mode_offset=offsets,
        noise=np.ones(2),
        variances=np.tile(EXPECTED, (2, 1)),
        common=np.asarray(expected_common(sizes.all - 1)),
        site=np.full(2, OFFSET),
    )


def advance(chains: Chain, sums: Arrays, setting: Setting, rng: np.random.Generator) -> Chain:
    """Update all parameters of all chains, given the sites' sums.

    If the sums hold those of a column that can be redrawn, parameters and column are updated in turn, more
    often the more of the column is missing.
    """
    sums = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=float), sums)
    sums = {**sums, "confounders": unpack(sums["confounders"]), "outcome": unpack(sums["outcome"])}
    times = _repeats(sums)
    parts, places = [], []
    try:
        for many in np.unique(times):
            at = np.flatnonzero(times == many)
            own, of_sites = jax.tree.map(lambda leaf, at=at: leaf[at], (chains, sums))
            parts.append(_repeated(own, of_sites, setting, int(many), rng))
            places.append(at)
    except np.linalg.LinAlgError as error:
        raise FitError(
            "the sums of the sites must be those of a regression",
            found="products of confounders or of slopes that are not positive definite",
            remedy="remove covariates that are copies of each other, or set structure='linear'",
        ) from error
    order = np.argsort(np.concatenate(places))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[order], *parts)


def _repeats(sums: Arrays) -> Int[np.ndarray, " c"]:
    """How often parameters and the redrawn column are updated in turn, in each chain."""
    all_ = sums["confounders"][:, 0, 0]
    if "redrawn" not in sums:
        return np.ones(len(all_), dtype=int)
    redrawn = sums["redrawn"][:, :, 0].sum(axis=1)
    repeated = np.minimum(REPEATED / np.maximum(1.0 - redrawn / all_, 1e-3), MOST_REPEATED)
    return np.where(redrawn > 0.0, np.ceil(repeated), 1.0).astype(int)


def _repeated(chain: Chain, sums: Arrays, setting: Setting, times: int, rng: np.random.Generator) -> Chain:
    """Update parameters and the redrawn column in turn."""
    chain, scale = _update(chain, sums, setting, rng)
    if times == 1:
        return chain
    size = sums["confounders"].shape[1]
    position = size - len(setting.layout.mean) + setting.column
    redrawn = collapsed.redrawn_of(sums, position)
    for _ in range(times - 1):
        sums, redrawn = collapsed.scaled(sums, redrawn, scale)
        outcome = chain.outcome[:, :, :size]
        found = collapsed.Regressions(chain.confounders, chain.treatment, outcome, chain.offset, chain.noise)
        drawn = collapsed.redraw(found, redrawn, setting.layout, position, rng)
        sums, redrawn = collapsed.moved(sums, redrawn, drawn), drawn
        chain, scale = _update(chain, sums, setting, rng)
    return chain


def _update(
    chain: Chain, sums: Arrays, setting: Setting, rng: np.random.Generator
) -> tuple[Chain, Float[np.ndarray, " c"]]:
    """One update of all parameters, and the factor by which it has multiplied the treatment's latents."""
    gram = sums["confounders"]
    size, spread = gram.shape[1], chain.spreads[:, 0]
    products = unpack(sums["treatment_products"]) if "treatment_products" in sums else gram
    scale = draw_scale(products, sums["treatment"], sums["treatment_square"], spread, rng)
    score = scale[:, None] * sums["treatment"]
    treatment = draw_probit(products, score, spread, np.ones(size, dtype=bool), rng)
    steps = draw_steps(gram, sums["steps"], chain.spreads[:, 1:], setting.layout, rng)
    common = _common(chain, setting.groups, rng)
    arms, terms = _outcome(setting, common, _by_arm(chain, sums, setting.family), rng)
    squares = np.concatenate([treatment.squares[:, None], steps.squares], axis=1)
    counts = np.append(treatment.number, steps.number)
    terms["spreads"] = NormalTerms(squares, counts, expected_spread(counts))
    terms["common"] = NormalTerms(np.sum(common**2, axis=1), size - 1.0, expected_common(size - 1))
    drawn = draw_variances(terms, rng)
    if isinstance(setting.family, NegativeBinomial):
        noise = draw_dispersion(sums["dispersion"], rng)
    else:
        noise = drawn["noise"] if setting.family.learns_noise else chain.noise
    first = size - len(setting.layout.mean)
    given = setting.layout.before_numbers(first)
    order = np.concatenate([given, first + setting.layout.numbers])
    numbers = draw_numbers(gram[:, order][:, :, order], len(given), rng)
    found = chain._replace(
        confounders={"steps": steps.coefficients, **numbers},
        treatment=treatment.coefficients,
        spreads=drawn["spreads"],
        common=drawn["common"],
        outcome=arms["outcome"],
        mode=arms["mode"],
        offset=np.swapaxes(arms["offset"], 1, 2),
        mode_offset=np.swapaxes(arms["mode_offset"], 1, 2),
        noise=noise,
        variances=np.where(LEARNED, drawn["variances"], EXPECTED),
        site=drawn["site"],
    )
    return found, scale


def draw_numbers(gram: Float[np.ndarray, "c p p"], size: int, rng: np.random.Generator) -> Arrays:
    """Draw the regression of the numeric confounders from its matrix-normal inverse-Wishart posterior."""
    count, width = gram[:, 0, 0], gram.shape[1] - size
    if not width:
        shapes = {"intercept": (0,), "slopes": (size - 1, 0), "covariance": (0, 0)}
        return {name: np.zeros((len(gram), *shape)) for name, shape in shapes.items()}
    root = np.linalg.cholesky(gram[:, :size, :size] + np.eye(size))
    white = np.linalg.solve(root, gram[:, :size, size:])
    scale = gram[:, size:, size:] - _transposed(white) @ white + LEAST_SPREAD * (width + 2) * np.eye(width)
    # Bartlett: the factor of a Wishart matrix holds χ's on its diagonal and standard normals below it.
    degrees = width + 2 + count[:, None] - np.arange(width)
    factor = np.tril(rng.standard_normal(scale.shape), -1)
    factor += np.sqrt(rng.chisquare(degrees))[:, :, None] * np.eye(width)
    spread = np.linalg.cholesky(scale) @ _transposed(np.linalg.inv(factor))
    noise = rng.standard_normal(white.shape) @ _transposed(spread)
    found = np.linalg.solve(_transposed(root), white + noise)
    return {"intercept": found[:, 0], "slopes": found[:, 1:], "covariance": spread @ _transposed(spread)}


class ProbitDraw(NamedTuple):
    """Coefficients of a probit, with the sum of squares and the number of its slopes."""

    coefficients: Float[np.ndarray, "*c p"]
    squares: Float[np.ndarray, "*c"]
    number: Float[np.ndarray, ...]


def draw_steps(
    gram: Float[np.ndarray, "c p p"], sums: Arrays, spreads: Float[np.ndarray, "c k"], layout: Layout,
    rng: np.random.Generator,
) -> ProbitDraw:  # fmt: skip
    """Draw the coefficients of the sequential probits of all discrete columns."""
    if not spreads.shape[1]:
        return ProbitDraw(sums["score"], spreads, np.zeros(0))
    first = gram.shape[1] - len(layout.mean)
    given = layout.before_numbers(first)
    common = np.pad(gram[:, given][:, :, given], ((0, 0), (0, CURVE), (0, CURVE)))
    everybody = asked_of_all(layout)
    products = np.empty((*spreads.shape, *common.shape[1:]))
    products[:, everybody], products[:, ~everybody] = common[:, None], unpack(sums["gram"])
    return draw_probit(products, sums["score"], spreads, allowed(layout, first - 1), rng)


def draw_scale(
    gram: Float[np.ndarray, "c p p"], score: Float[np.ndarray, "c p"], square: Float[np.ndarray, " c"],
    variance: Float[np.ndarray, " c"], rng: np.random.Generator,
) -> Float[np.ndarray, " c"]:  # fmt: skip
    """Draw the common factor of all latents of a probit, with the coefficients integrated out.

    The signs of the latents do not restrict their scale, but given the scale the coefficients hardly move.
    Multiplying all latents by c and drawing c from its conditional distribution, c² ~ χ²_n/Q with Q the
    latents' squared Mahalanobis length, is parameter-expanded data augmentation (Liu & Wu 1999).
    """
    prior = _probit_prior(np.ones(score.shape[1], dtype=bool), variance)
    explained = np.sum(score * _solved(gram + _diagonal(prior), score), axis=1)
    return np.sqrt(rng.chisquare(gram[:, 0, 0]) / (square - explained))


def _probit_prior(free: np.ndarray, variance: np.ndarray) -> Float[np.ndarray, "*c p"]:
    """Prior precision of a probit's coefficients."""
    found = np.where(free, 1.0 / variance[..., None], FIXED)
    found[..., 0] = INTERCEPT_PRECISION
    return found


def draw_probit(
    gram: Float[np.ndarray, "*c p p"], score: Float[np.ndarray, "*c p"], variance: Float[np.ndarray, "*c"],
    free: np.ndarray, rng: np.random.Generator,
) -> ProbitDraw:  # fmt: skip
    """Draw a probit's coefficients given its latent variables; those that are not `free` are zero."""
    root = np.linalg.cholesky(gram + _diagonal(_probit_prior(free, variance)))
    white = _solved(root, score) + rng.standard_normal(score.shape)
    found = np.where(free, _solved(_transposed(root), white), 0.0)
    return ProbitDraw(found, np.sum(found[..., 1:] ** 2, axis=-1), np.sum(free, axis=-1) - 1.0)


class _Arm(NamedTuple):
    """Sums and current parameters of the arms of the outcome regression; the arm is the axis a."""

    gram: Float[np.ndarray, "c a b b"]
    score: Float[np.ndarray, "c a b"]
    square: Float[np.ndarray, "c a"]
    people: Float[np.ndarray, "c a m"]
    cross: Float[np.ndarray, "c a m b"]
    site_score: Float[np.ndarray, "c a m"]
    mode: Float[np.ndarray, "c a b"]
    noise: Float[np.ndarray, "c a"]
    variances: Float[np.ndarray, "c a g"]
    site: Float[np.ndarray, "c a"]


def _by_arm(chain: Chain, sums: Arrays, family: ClosedFamily) -> _Arm:
    """Collect sums and parameters by arm."""
    # The working weights of other families hold their variance already.
    noise = chain.noise if family.learns_noise else np.ones_like(chain.noise)
    people, cross, score = (np.swapaxes(sums[name], 1, 2) for name in ("people", "site_cross", "site_score"))
    return _Arm(
        sums["outcome"], sums["score"], sums["square"], people, cross, score, chain.mode, noise,
        chain.variances, chain.site,
    )  # fmt: skip


def _common(chain: Chain, groups: np.ndarray, rng: np.random.Generator) -> Float[np.ndarray, "c b"]:
    """Draw the component that the slopes of both arms share; zero for other coefficients."""
    own = chain.variances[:, :, SLOPES, None]
    precision = 1.0 / chain.common[:, None] + np.sum(1.0 / own, axis=1)
    mean = np.sum(chain.outcome / own, axis=1) / precision
    drawn = mean + rng.standard_normal(mean.shape) / np.sqrt(precision)
    return np.where(groups == SLOPES, drawn, 0.0)


def _outcome(
    setting: Setting, common: Float[np.ndarray, "c b"], arm: _Arm, rng: np.random.Generator
) -> tuple[Arrays, dict[str, NormalTerms]]:
    """Draw coefficients and offsets of the arms exactly; return them and the terms of each variance.

    y = slopesᵀ(common + Rξ) + t η_s + e with ξ and η_s standard normal, of which the sites' η_s are
    eliminated first, as in `unpooled.maths.partial_pooling`.
    """
    common = common[:, None]
    r = np.sqrt(arm.variances[:, :, setting.groups])
    t, weight = np.sqrt(arm.site * setting.several)[..., None], 1.0 / arm.noise[..., None]
    own = np.sqrt(1.0 + t**2 * weight * arm.people)
    cross = (t * weight / own)[..., None] * arm.cross
    site_white = t * weight * (arm.site_score - _times_vector(arm.cross, common)) / own
    gram = weight[..., None] * arm.gram - _transposed(cross) @ cross
    score = weight * (arm.score - _times_vector(arm.gram, common))
    score = score - _times_vector(_transposed(cross), site_white)
    root = np.linalg.cholesky(r[..., None] * gram * r[..., None, :] + np.eye(gram.shape[-1]))
    white = _solved(root, r * score)
    noise = rng.standard_normal(white.shape)
    mean, drawn = (r * _solved(_transposed(root), one) for one in (white, white + noise))
    site_noise = rng.standard_normal(site_white.shape)
    mode_offset = t * (site_white - _times_vector(cross, mean)) / own
    offset = t * (site_white - _times_vector(cross, drawn) + site_noise) / own
    step = mean + common - arm.mode
    far = np.max(np.where(setting.groups >= DIRECTION, np.abs(step) / r, 0.0), axis=-1, keepdims=True)
    mode = arm.mode + step / np.maximum(1.0, far / FURTHEST)
    found = mode + drawn - mean
    member = (setting.groups[:, None] == np.arange(len(EXPECTED))).astype(float)
    terms = {
        "noise": NormalTerms(_squares(arm, drawn + common, offset), arm.people.sum(axis=-1), NOISE),
        "variances": NormalTerms((found - common) ** 2 @ member, member.sum(axis=0), EXPECTED),
        "site": NormalTerms(np.sum(offset**2, axis=-1), float(offset.shape[-1]), OFFSET),
    }
    return {"outcome": found, "mode": mode, "offset": offset, "mode_offset": mode_offset}, terms


def _squares(arm: _Arm, coefficients: np.ndarray, offset: np.ndarray) -> Float[np.ndarray, "c a"]:
    """The residual sum of squares Σ (response − slopesᵀβ − offset)², from the sums."""
    fitted = _times_vector(arm.gram, coefficients) - 2.0 * arm.score
    at_sites = 2.0 * (_times_vector(arm.cross, coefficients) - arm.site_score) + arm.people * offset
    found = arm.square + np.sum(coefficients * fitted, axis=-1) + np.sum(offset * at_sites, axis=-1)
    return np.maximum(found, 1e-9)


def _diagonal(values: Float[np.ndarray, "*c p"]) -> Float[np.ndarray, "*c p p"]:
    return values[..., None] * np.eye(values.shape[-1])


def _transposed(matrix: Float[np.ndarray, "*c p q"]) -> Float[np.ndarray, "*c q p"]:
    return np.swapaxes(matrix, -1, -2)


def _times_vector(matrix: Float[np.ndarray, "*c p q"], vector: np.ndarray) -> Float[np.ndarray, "*c p"]:
    return (matrix @ vector[..., None])[..., 0]


def _solved(matrix: Float[np.ndarray, "*c p p"], right: np.ndarray) -> Float[np.ndarray, "*c p"]:
    return np.linalg.solve(matrix, right[..., None])[..., 0]
