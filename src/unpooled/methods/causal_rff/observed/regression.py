"""The features in which outcomes are regressed: an intercept, a linear part, and random Fourier features."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unpooled.maths import partial_pooling as pooling
from unpooled.maths.fourier import fourier_features
from unpooled.maths.linear_algebra import pack, unpack
from unpooled.methods.causal_rff.settings import CausalRFFContext
from unpooled.models.outcome_family import Family, Logit
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage


class Design(eqx.Module):
    """φ(x) = [1, x, Fourier features of some columns]; the seed makes its frequencies everywhere alike."""

    frequencies: Float[Array, "b c"]
    columns: Int[Array, " c"]
    linear: int = eqx.field(static=True)

    def features(self, covariates: Float[Array, "n d"], length: Array) -> Float[Array, "n f"]:
        parts = [jnp.ones((covariates.shape[0], 1)), covariates]
        if self.frequencies.size:
            parts.append(fourier_features(self.frequencies, covariates[:, self.columns], length))
        return jnp.concatenate(parts, axis=1)

    @property
    def width(self) -> int:
        return 1 + self.linear + 2 * self.frequencies.shape[0]

    @property
    def lengths(self) -> np.ndarray:
        """Length-scales tried, all in one message: from half to four times the width of the data."""
        if not self.frequencies.size:
            return np.ones(1)
        return np.array([0.5, 1.0, 2.0, 4.0]) * np.sqrt(self.frequencies.shape[1])

    @property
    def part(self) -> np.ndarray:
        """Of each feature: 0 the intercept, 1 linear, 2 Fourier."""
        return np.repeat([0, 1, 2], [1, self.linear, 2 * self.frequencies.shape[0]])


def make_design(context: CausalRFFContext) -> Design:
    return Design(
        jnp.asarray(context.frequencies),
        jnp.asarray(context.fourier_columns),
        context.covariates,
    )


CODES = np.array([[1.0, -0.5], [1.0, 0.5]])
"""Of each arm: how its rows see (what is shared, the effect)."""
LOGIT_SCALE = 4.0
"""Variances of logits, for variances of standardised outcomes of the same steepness."""
SPREAD = 1.5
"""Prior sd of every log-variance about what is expected."""


class RegressionStatistics(NamedTuple):
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
    family: Family
    width: int = eqx.field(static=True)
    """In how many of the features a site may differ: 1 (offsets) or all."""
    reveals: ClassVar[str] = (
        "for sums over sites: products of the covariates' features by arm; at this site: sums of the "
        "features and of the outcome by arm (where sites may differ in every coefficient, the products too)"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        fixed = parameters.fixed
        use = rows.present * (rows.fold != fixed["fold"])
        features = self.design.features(rows.covariates, fixed["length"])
        weight, response, level = jnp.ones_like(use), rows.outcome, jnp.zeros_like(use)
        if isinstance(self.family, Logit):
            weight, response, level = self._working(parameters, features, rows)
        arms = jnp.stack([1.0 - rows.treatment, rows.treatment]) * use
        gram = jnp.einsum("an,nf,ng->afg", arms * weight, features, features)
        score = jnp.einsum("an,n,nf->af", arms, response, features)
        return Statistics(
            {
                "gram": pack(gram),
                "score": score,
                "square": arms @ response**2,
                "people": arms.sum(axis=1),
                "level": use @ level,
            },
            {"cross": gram[:, : self.width], "site_score": score[:, : self.width]},
        )

    def _working(self, parameters: Parameters, features: Array, rows: Rows) -> tuple[Array, Array, Array]:
        """The log likelihood of 0/1 outcomes to second order about the last coefficients (IRLS)."""
        arm = rows.treatment.astype(int)
        both = linear_predictor(features, parameters.fixed["common"], parameters.per_site["site"])
        logit = both[jnp.arange(len(arm)), arm]
        chance = jax.nn.sigmoid(logit)
        weight, slope = chance * (1.0 - chance), self.family.seen(rows.outcome) - chance
        level = (
            self.family.log_density(self.family.seen(rows.outcome), logit, weight)
            - slope * logit
            - 0.5 * weight * logit**2
        )
        return weight, slope + weight * logit, level


def linear_predictor(features: Array, common: Array, site: Array) -> Float[Array, "n 2"]:
    """What the coefficients of all and of a site say of either arm."""
    seen = features @ common.T + features[:, : site.shape[1]] @ site.T
    return seen @ jnp.asarray(CODES).T


def sums_of(reply: Statistics, index: int) -> RegressionStatistics:
    """One entry of an aggregated reply."""
    parts: dict[str, Any] = {**reply.summed, **reply.per_site}
    found = {name: jnp.asarray(parts[name][index]) for name in RegressionStatistics._fields}
    return RegressionStatistics(**{**found, "gram": unpack(found["gram"])})


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


def assemble(sums: RegressionStatistics, noise: Array) -> pooling.PoolingSums:
    """The solve's statistics, in units of the noise."""
    codes = jnp.asarray(CODES)
    both = codes[:, :, None] * codes[:, None, :] / noise[:, None, None]
    each = codes / noise[:, None]
    sites, _, width, size = sums.cross.shape
    cross = jnp.einsum("auv,mawf->muwvf", both, sums.cross)
    return pooling.PoolingSums(
        gram=jnp.einsum("auv,afg->ufvg", both, sums.gram).reshape(2 * size, 2 * size),
        score=jnp.einsum("au,af->uf", each, sums.score).reshape(-1),
        site_gram=cross[..., :width].reshape(sites, 2 * width, 2 * width),
        site_cross=cross.reshape(sites, 2 * width, 2 * size),
        site_score=jnp.einsum("au,maw->muw", each, sums.site_score).reshape(sites, -1),
    )


def prior_of(outline: Outline, variances: Array) -> pooling.PoolingPrior:
    root = jnp.sqrt(variances)
    return pooling.PoolingPrior(
        jnp.diag(root[np.array(outline.common)]), jnp.diag(root[np.array(outline.site)])
    )


def beyond_solve(outline: Outline, log_variances: Array, sums: RegressionStatistics) -> Array:
    """The log evidence beside the solve's: of noise and outcomes alone, and of the log-variances a priori."""
    noise = jnp.exp(log_variances[-2:])  # one, for 0/1 outcomes
    rest = jnp.sum(sums.people * jnp.log(2.0 * jnp.pi * noise) + sums.square / noise)
    level = sums.level if outline.binary else -0.5 * rest
    apart = (log_variances - jnp.log(jnp.asarray(outline.expected))) / SPREAD
    return level - 0.5 * jnp.sum(apart**2)


class PartlyShared(eqx.Module):
    """θ_s = θ + B b_s. See `unpooled.methods.causal_rff.observed.modes.SiteTerms`."""

    outline: Outline = eqx.field(static=True)

    @property
    def binary(self) -> bool:
        return self.outline.binary

    @property
    def expected(self) -> np.ndarray:
        return np.log(np.array(self.outline.expected))

    @property
    def variances(self) -> np.ndarray:
        return learned_variances(self.outline)

    @property
    def others(self) -> np.ndarray:
        return np.zeros(0, int)

    def log_evidence(self, point: Array, sums: RegressionStatistics) -> Array:
        found = pooling.posterior(*self._solve(point, sums))
        return found.log_evidence + beyond_solve(self.outline, point, sums)

    def coefficients(self, point: Array, sums: RegressionStatistics, key: Array | None) -> dict[str, Array]:
        seen, prior = self._solve(point, sums)
        found = pooling.coefficients(pooling.posterior(seen, prior), prior, key)
        return {
            "common": found.common.reshape(2, -1),
            "site": found.site.reshape(found.site.shape[0], 2, -1),
            "noise": jnp.exp(point[-2:]),
        }

    def between_sites(self, point: Array, sums: RegressionStatistics) -> dict[str, Array]:
        return {"borrowed": pooling.borrowed_shares(*self._solve(point, sums))}

    def _solve(
        self, point: Array, sums: RegressionStatistics
    ) -> tuple[pooling.PoolingSums, pooling.PoolingPrior]:
        variances = jnp.exp(point)
        return assemble(sums, variances[-2:]), prior_of(self.outline, variances)


def learned_variances(outline: Outline) -> np.ndarray:
    """Those in use whose size is not fixed."""
    last = len(outline.expected)
    used = {*outline.common, *outline.site, *(() if outline.binary else (last - 2, last - 1))}
    return np.array(sorted(i for i in used if i != 0 and outline.expected[i] > 1e-9))
