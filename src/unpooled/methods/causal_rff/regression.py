"""Observed confounders: the outcome regressed on features of x, coefficients shared by the sites in part.

One round of sums is all the sites give; variances, length-scale and coefficients follow at the coordinator.
A row of arm a has the design [φ, c_a φ] with c = ∓½: what both arms share, and the effect.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import minimize

from unpooled.maths import partial_pooling as pooling
from unpooled.methods.causal_rff.design import Design
from unpooled.protocol.messages import Tree
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage

CODES = np.array([[1.0, -0.5], [1.0, 0.5]])
"""Of each arm: how its rows see (what is shared, the effect)."""
SPREAD = 1.5
"""Prior sd of every log-variance about what is expected."""


class Sums(NamedTuple):
    """By arm; `cross` and `site_score` by site, of the first features only, in which a site may differ."""

    gram: Float[Array, "2 f f"]
    score: Float[Array, "2 f"]
    square: Float[Array, " 2"]
    people: Float[Array, " 2"]
    cross: Float[Array, "m 2 w f"]
    site_score: Float[Array, "m 2 w"]


class Regression(Stage):
    """Gram matrices of the features by arm; a site's own only where sites differ in every coefficient."""

    design: Design
    width: int = eqx.field(static=True)
    """In how many of the features a site may differ: 1 (offsets) or all."""
    reveals: ClassVar[str] = (
        "summed over sites: products of the covariates' features by arm; at this site: sums of the features "
        "and of the outcome by arm (with `site_terms = deviations`, the products too)"
    )

    def statistics(self, parameters: Tree, rows: Rows) -> Tree:
        fixed = parameters["fixed"]
        use = rows.present * (rows.fold != fixed["fold"])
        arms = jnp.stack([1.0 - rows.treatment, rows.treatment]) * use
        features = self.design.features(rows.covariates, fixed["length"])
        gram = jnp.einsum("an,nf,ng->afg", arms, features, features)
        score = jnp.einsum("an,n,nf->af", arms, rows.outcome, features)
        return {
            "total": {
                "gram": gram,
                "score": score,
                "square": arms @ rows.outcome**2,
                "people": arms.sum(axis=1),
            },
            "each": {"cross": gram[:, : self.width], "site_score": score[:, : self.width]},
        }


class Outline(eqx.Module):
    """Which variance each coefficient has: columns of [shared, effect] × features, for all and for a site."""

    common: tuple[int, ...] = eqx.field(static=True)
    site: tuple[int, ...] = eqx.field(static=True)
    expected: tuple[float, ...] = eqx.field(static=True)


# Variances: 0 fixed (the intercepts'); shared and effect: linear 1, 2 and Fourier 3, 4; noise last.
def outline(design: Design, width: int, *, differ: bool) -> Outline:
    """Of standardised outcomes: what a linear part and a Fourier part of the usual size would be."""
    part, linear = design.part, 1.0 / max(design.linear, 1)
    common = [np.select([part == 0, part == 1], [0, 1 + effect], 3 + effect) for effect in (0, 1)]
    site = [
        np.select([part == 0, part == 1], [5 + effect, 7 + effect], 9 + effect)[:width] for effect in (0, 1)
    ]
    expected = [1.0, linear, 0.5 * linear, 0.2, 0.1]
    expected += [0.05, 0.02, 0.2 * linear, 0.1 * linear, 0.05, 0.02] if differ else [1e-12] * 6
    return Outline(
        tuple(np.concatenate(common).tolist()), tuple(np.concatenate(site).tolist()), (*expected, 0.4, 0.4)
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
    noise = variances[-2:]
    found = pooling.posterior(assemble(sums, noise), prior_of(outline, variances))
    rest = jnp.sum(sums.people * jnp.log(2.0 * jnp.pi * noise) + sums.square / noise)
    apart = (log_variances - jnp.log(jnp.asarray(outline.expected))) / SPREAD
    return found.log_evidence - 0.5 * rest - 0.5 * jnp.sum(apart**2)


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
    used = {*outline.common, *outline.site, len(expected) - 2, len(expected) - 1}
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
        variances = jnp.exp(leaves[0])
        prior = prior_of(outline, variances)
        fitted = pooling.posterior(assemble(sums, variances[-2:]), prior)
        found = pooling.coefficients(fitted, prior, leaves[1])
        sites, size = found.site.shape[0], sums.gram.shape[1]
        return {
            "common": found.common.reshape(2, size),
            "site": found.site.reshape(sites, 2, -1),
            "noise": variances[-2:],
        }

    return jax.lax.map(one, (log_variances, keys))
