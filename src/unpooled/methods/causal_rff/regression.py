"""Observed confounders: the outcome regressed on features of x, coefficients shared by the sites in part.

One round of sums is all the sites give; variances, length-scale and coefficients follow at the coordinator.
A row of arm a has the design [φ, c_a φ] with c = ∓½: what both arms share, and the effect.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import minimize

from unpooled.maths import partial_pooling as pooling
from unpooled.maths.triangles import pack, unpack
from unpooled.methods.causal_rff.design import Design
from unpooled.methods.causal_rff.outcomes import OutcomeScale
from unpooled.protocol.messages import Tree
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage

CODES = np.array([[1.0, -0.5], [1.0, 0.5]])
"""Of each arm: how its rows see (what is shared, the effect)."""
LOGIT_SCALE = 4.0
"""Variances of logits, for variances of standardised outcomes of the same steepness."""
SPREAD = 1.5
"""Prior sd of every log-variance about what is expected."""


class Sums(NamedTuple):
    """By arm; `cross` and `site_score` by site, of the first features only, in which a site may differ."""

    gram: Float[Array, "2 f f"]
    score: Float[Array, "2 f"]
    square: Float[Array, " 2"]
    people: Float[Array, " 2"]
    level: Float[Array, ""]
    """What the log likelihood of 0/1 outcomes has beside its quadratic; 0 for numbers."""
    cross: Float[Array, "m 2 w f"]
    site_score: Float[Array, "m 2 w"]


class Regression(Stage):
    """Gram matrices of the features by arm; a site's own only where sites differ in every coefficient."""

    design: Design
    outcome: OutcomeScale
    width: int = eqx.field(static=True)
    """In how many of the features a site may differ: 1 (offsets) or all."""
    reveals: ClassVar[str] = (
        "summed over sites: products of the covariates' features by arm; at this site: sums of the features "
        "and of the outcome by arm (with `site_terms = deviations`, the products too)"
    )

    def statistics(self, parameters: Tree, rows: Rows) -> Tree:
        fixed = parameters["fixed"]
        use = rows.present * (rows.fold != fixed["fold"])
        features = self.design.features(rows.covariates, fixed["length"])
        weight, response, level = jnp.ones_like(use), rows.outcome, jnp.zeros_like(use)
        if self.outcome.binary:
            weight, response, level = self._working(fixed, features, rows)
        arms = jnp.stack([1.0 - rows.treatment, rows.treatment]) * use
        gram = jnp.einsum("an,nf,ng->afg", arms * weight, features, features)
        score = jnp.einsum("an,n,nf->af", arms, response, features)
        return {
            "total": {
                "gram": pack(gram),
                "score": score,
                "square": arms @ response**2,
                "people": arms.sum(axis=1),
                "level": use @ level,
            },
            "each": {"cross": gram[:, : self.width], "site_score": score[:, : self.width]},
        }

    def _working(self, fixed: Tree, features: Array, rows: Rows) -> tuple[Array, Array, Array]:
        """The log likelihood of 0/1 outcomes to second order about the last coefficients (IRLS)."""
        arm = rows.treatment.astype(int)
        both = linear_predictor(features, fixed["common"], fixed["site"][rows.site])
        logit = both[jnp.arange(len(arm)), arm]
        chance = jax.nn.sigmoid(logit)
        weight, slope = chance * (1.0 - chance), self.outcome.seen(rows) - chance
        level = self.outcome.log_density(rows, logit, weight) - slope * logit - 0.5 * weight * logit**2
        return weight, slope + weight * logit, level


def linear_predictor(features: Array, common: Array, site: Array) -> Float[Array, "n 2"]:
    """What the coefficients of all and of a site say of either arm."""
    seen = features @ common.T + features[:, : site.shape[1]] @ site.T
    return seen @ jnp.asarray(CODES).T


def sums_of(reply: Tree, index: int) -> Sums:
    """One entry of an aggregated reply."""
    parts: dict[str, Any] = {**reply["total"], **reply["each"]}
    found = {name: jnp.asarray(parts[name][index]) for name in Sums._fields}
    return Sums(**{**found, "gram": unpack(found["gram"])})


class Outline(eqx.Module):
    """Which variance each coefficient has: columns of [shared, effect] × features, for all and for a site."""

    common: tuple[int, ...] = eqx.field(static=True)
    site: tuple[int, ...] = eqx.field(static=True)
    expected: tuple[float, ...] = eqx.field(static=True)
    binary: bool = eqx.field(static=True)


# Variances: 0 fixed (the intercepts'); shared and effect: linear 1, 2 and Fourier 3, 4; noise last.
def outline(design: Design, width: int, *, differ: bool, binary: bool) -> Outline:
    """Of standardised outcomes: what a linear part and a Fourier part of the usual size would be."""
    part, linear = design.part, 1.0 / max(design.linear, 1)
    scale = LOGIT_SCALE if binary else 1.0
    common = [np.select([part == 0, part == 1], [0, 1 + effect], 3 + effect) for effect in (0, 1)]
    site = [
        np.select([part == 0, part == 1], [5 + effect, 7 + effect], 9 + effect)[:width] for effect in (0, 1)
    ]
    expected = [1.0, linear, 0.5 * linear, 0.2, 0.1]
    expected += [0.05, 0.02, 0.2 * linear, 0.1 * linear, 0.05, 0.02] if differ else [1e-12] * 6
    return Outline(
        tuple(np.concatenate(common).tolist()),
        tuple(np.concatenate(site).tolist()),
        (*[scale * size for size in expected], *((1.0, 1.0) if binary else (0.4, 0.4))),
        binary,
    )


def assemble(sums: Sums, noise: Array) -> pooling.Sums:
    """The solve's statistics, in units of the noise."""
    codes = jnp.asarray(CODES)
    both = codes[:, :, None] * codes[:, None, :] / noise[:, None, None]
    each = codes / noise[:, None]
    sites, _, width, size = sums.cross.shape
    cross = jnp.einsum("auv,mawf->muwvf", both, sums.cross)
    return pooling.Sums(
        gram=jnp.einsum("auv,afg->ufvg", both, sums.gram).reshape(2 * size, 2 * size),
        score=jnp.einsum("au,af->uf", each, sums.score).reshape(-1),
        site_gram=cross[..., :width].reshape(sites, 2 * width, 2 * width),
        site_cross=cross.reshape(sites, 2 * width, 2 * size),
        site_score=jnp.einsum("au,maw->muw", each, sums.site_score).reshape(sites, -1),
    )


def prior_of(outline: Outline, variances: Array) -> pooling.Prior:
    root = jnp.sqrt(variances)
    return pooling.Prior(jnp.diag(root[np.array(outline.common)]), jnp.diag(root[np.array(outline.site)]))


def log_evidence(outline: Outline, log_variances: Array, sums: Sums) -> Array:
    """Of the outcomes, and of the log-variances a priori."""
    variances = jnp.exp(log_variances)
    noise = variances[-2:]  # one, for 0/1 outcomes
    found = pooling.posterior(assemble(sums, noise), prior_of(outline, variances))
    rest = jnp.sum(sums.people * jnp.log(2.0 * jnp.pi * noise) + sums.square / noise)
    level = sums.level if outline.binary else -0.5 * rest
    apart = (log_variances - jnp.log(jnp.asarray(outline.expected))) / SPREAD
    return found.log_evidence + level - 0.5 * jnp.sum(apart**2)


class Mode(NamedTuple):
    """The likeliest log-variances, the precision about them, and the log evidence of the whole."""

    log_variances: np.ndarray
    precision: np.ndarray
    evidence: float


@partial(jax.jit, static_argnums=0)
def _value_and_slope(outline: Outline, moving: Array, begun: Array, learned: Array, sums: Sums) -> tuple:
    def value(point: Array) -> Array:
        return -log_evidence(outline, begun.at[learned].set(point), sums)

    return jax.value_and_grad(value)(moving)


@partial(jax.jit, static_argnums=0)
def _curvature(outline: Outline, moving: Array, begun: Array, learned: Array, sums: Sums) -> Array:
    return jax.hessian(lambda point: -log_evidence(outline, begun.at[learned].set(point), sums))(moving)


def find_mode(
    outline: Outline, sums: Sums, start: np.ndarray | None = None, *, curvature: bool = True
) -> Mode:
    """Maximise the evidence over the variances that there are."""
    expected = np.log(np.array(outline.expected))
    noises = set() if outline.binary else {len(expected) - 2, len(expected) - 1}
    used = {*outline.common, *outline.site, *noises}
    learned = np.array(sorted(i for i in used if i != 0 and outline.expected[i] > 1e-9))
    point = (expected if start is None else start)[learned]
    found = minimize(
        lambda at: [np.asarray(part) for part in _value_and_slope(outline, at, expected, learned, sums)],
        point,
        jac=True,
        method="L-BFGS-B",
        bounds=[(expected[i] - 12.0, expected[i] + 12.0) for i in learned],
        options={"maxiter": 100, "ftol": 1e-9},
    )
    mode = expected.copy()
    mode[learned] = found.x
    if not curvature:
        return Mode(mode, np.zeros((len(expected), len(expected))), -float(found.fun))
    inner = np.asarray(_curvature(outline, found.x, expected, learned, sums))
    values, vectors = np.linalg.eigh(inner)
    values = np.maximum(values, 1.0 / SPREAD**2)
    precision = np.zeros((len(expected), len(expected)))
    precision[np.ix_(learned, learned)] = (vectors * values) @ vectors.T
    return Mode(mode, precision, -float(found.fun) - 0.5 * float(np.log(values).sum()))


def mean(outline: Outline, sums: Sums, mode: Mode) -> Tree:
    """The coefficients' posterior mean at the likeliest variances: {common, site}."""
    found = _mean(outline, jnp.asarray(mode.log_variances), sums)
    return {name: np.asarray(part) for name, part in found.items()}


@partial(jax.jit, static_argnums=0)
def _mean(outline: Outline, log_variances: Array, sums: Sums) -> dict[str, Array]:
    return _coefficients(outline, log_variances, sums, None)


def _coefficients(outline: Outline, log_variances: Array, sums: Sums, key: Array | None) -> dict[str, Array]:
    variances = jnp.exp(log_variances)
    prior = prior_of(outline, variances)
    fitted = pooling.posterior(assemble(sums, variances[-2:]), prior)
    found = pooling.coefficients(fitted, prior, key)
    sites, size = found.site.shape[0], sums.gram.shape[1]
    return {
        "common": found.common.reshape(2, size),
        "site": found.site.reshape(sites, 2, -1),
        "noise": variances[-2:],
    }


def draw(outline: Outline, sums: Sums, mode: Mode, count: int, rng: np.random.Generator) -> Tree:
    """Variances about their mode, coefficients from their exact posterior under each."""
    values, vectors = np.linalg.eigh(mode.precision)
    scale = np.where(values > 1e-9, 1.0 / np.sqrt(np.maximum(values, 1e-9)), 0.0)
    moved = mode.log_variances + (rng.standard_normal((count, len(scale))) * scale) @ vectors.T
    keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), count)
    return {name: np.asarray(part) for name, part in _draws(outline, moved, sums, keys).items()}


@partial(jax.jit, static_argnums=0)
def _draws(outline: Outline, log_variances: Array, sums: Sums, keys: Array) -> dict[str, Array]:
    def one(leaves: tuple[Array, Array]) -> dict[str, Array]:
        return _coefficients(outline, leaves[0], sums, leaves[1])

    return jax.lax.map(one, (log_variances, keys))
