"""The outcome regression: its features, the stage that sums them, and partially pooled coefficients.

φ(x) has an intercept, a linear part and random Fourier features. Sites send Gram matrices by arm; the
coordinator solves for coefficients of the shared part and of the effect, common to all sites plus site terms,
with a variance for each group of coefficients.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unpooled.disclosure.effective_people import capped, enough, spread_out
from unpooled.maths import partial_pooling as pooling
from unpooled.maths.fourier import fourier_features
from unpooled.maths.linear_algebra import pack, unpack
from unpooled.methods.causal_rff.settings import CausalRFFContext
from unpooled.models.dispersion import log_densities
from unpooled.models.link import Link
from unpooled.models.outcome_family import Family, Gaussian, NegativeBinomial
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import FOLD, LINEAR, LOGIT, Bounds, Stage

CODES = np.array([[1.0, -0.5], [1.0, 0.5]])
"""Contrast of each arm: loadings on (shared part, effect)."""
SCALES = {"continuous": 1.0, "binary": 4.0, "count": 1.0}
"""Factor from variances of standardised outcomes to variances of predictors of similar steepness: of logits,
and of the latent function of counts, whose link has a unit."""
SPREAD = 1.5
"""Prior sd of every log-variance about its expectation."""


DISPERSION = (0.0, 100.0)
"""Bounds of the dispersion of counts."""
COEFFICIENTS: Bounds = {"length": (0.4, 1e4), "common": LINEAR, "site": LINEAR, "noise": (1e-6, 100.0)}
"""Bounds of the regression's parameters; the shortest length-scale is half the scale of the data."""


class Design(eqx.Module):
    """φ(x) = [1, x, Fourier features of some columns]; all parties use the same frequencies."""

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
        """Length-scales to try, all in one batch: from half to four times the scale of the data."""
        if not self.frequencies.size:
            return np.ones(1)
        return np.array([0.5, 1.0, 2.0, 4.0]) * np.sqrt(self.frequencies.shape[1])

    @property
    def part(self) -> np.ndarray:
        """Part of each feature: 0 intercept, 1 linear, 2 Fourier."""
        return np.repeat([0, 1, 2], [1, self.linear, 2 * self.frequencies.shape[0]])


def make_design(context: CausalRFFContext) -> Design:
    return Design(
        jnp.asarray(context.frequencies),
        jnp.asarray(context.fourier_columns),
        context.covariates,
    )


class RegressionStatistics(NamedTuple):
    """Sums by arm; `cross` and `site_score` by site, for the features in which sites may differ."""

    gram: Float[Array, "2 f f"]
    score: Float[Array, "2 f"]
    square: Float[Array, " 2"]
    people: Float[Array, " 2"]
    level: Float[Array, ""]
    """Constant term of the quadratic expansion of the log likelihood; 0 for Gaussian outcomes."""
    cross: Float[Array, "m 2 w f"]
    site_score: Float[Array, "m 2 w"]


class Regression(Stage):
    """Gram matrices of the features by arm, and the rows of them that belong to site terms."""

    design: Design
    family: Family
    width: int = eqx.field(static=True)
    """Number of features in which sites may differ: 1 (offsets) or all."""
    differ: bool = eqx.field(static=True)
    """Whether sites may differ at all."""
    link: Link | None = None
    """The link of counts, whose predictor is that of the mean count plus a unit times the regression."""
    reveals: ClassVar[str] = (
        "for sums over sites: products of the covariates' features by arm; where sites may differ, at this "
        "site: sums of the features and of the outcome by arm (where they may differ in every coefficient, "
        "the products too); of counts, for sums over sites, their log densities at given dispersions by arm"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        fixed = parameters.fixed
        use = rows.present * (rows.fold != fixed["fold"])
        features = self.design.features(rows.covariates, fixed["length"])
        found = _Expansion(jnp.ones_like(use), rows.outcome, jnp.zeros_like(use), jnp.zeros_like(use))
        if not isinstance(self.family, Gaussian):
            found = self._expanded(parameters, features, rows, use)
        arms = jnp.stack([1.0 - rows.treatment, rows.treatment]) * use
        arms = arms * enough(arms * found.weight, rows.least)[:, None]
        gram = jnp.einsum("an,nf,ng->afg", arms * found.weight, features, features)
        score = jnp.einsum("an,n,nf->af", arms, found.response, features)
        own = {"cross": gram[:, : self.width], "site_score": score[:, : self.width]}
        total = {
            "gram": pack(gram),
            "score": score,
            "square": arms @ found.response**2,
            "people": arms.sum(axis=1),
            "level": use @ found.level,
        }
        if isinstance(self.family, NegativeBinomial):
            # The squares of working responses are not needed, and single large counts would dominate them.
            seen = self.family.seen(rows.outcome)
            total["square"] = jnp.zeros(2)
            total["dispersion"] = log_densities(self.family, seen, found.predictor, arms, rows.least)
        return Statistics(total, own if self.differ else {})

    def bounds(self) -> Bounds:
        found: Bounds = {"fold": FOLD, **COEFFICIENTS}
        if self.link is not None:
            steepest = (-self.link.largest, self.link.largest)
            found |= {"common": steepest, "site": steepest, "dispersion": DISPERSION}
        elif not isinstance(self.family, Gaussian):
            found |= {"common": LOGIT, "site": LOGIT}
        return found

    def _expanded(self, parameters: Parameters, features: Array, rows: Rows, use: Array) -> _Expansion:
        """The quadratic expansion of the log likelihood about the coefficients (IRLS)."""
        arm = rows.treatment.astype(int)
        both = linear_predictor(features, parameters.fixed["common"], parameters.per_site["site"])
        point, outcome = both[jnp.arange(len(arm)), arm], self.family.seen(rows.outcome)
        if self.link is not None:
            return _of_counts(self.link, outcome, point, parameters.fixed["dispersion"][arm], use, rows.least)
        chance = jax.nn.sigmoid(point)
        weight, slope = chance * (1.0 - chance), outcome - chance
        log = self.family.log_density(outcome, point, weight)
        level = log - slope * point - 0.5 * weight * point**2
        return _Expansion(weight, slope + weight * point, level, point)


class _Expansion(NamedTuple):
    """log p(y) ≈ level + response·f − ½·weight·f² about the point whose predictor is given."""

    weight: Float[Array, " n"]
    response: Float[Array, " n"]
    level: Float[Array, " n"]
    predictor: Float[Array, " n"]


def _of_counts(
    link: Link, outcome: Array, point: Array, dispersion: Array, use: Array, least: float
) -> _Expansion:
    """Of counts; where the curve is steep, few people may not tell more of it than all others together."""
    point = link.near(point)
    predictor = link.predictor(point)
    found = link.observed(outcome, point, dispersion)
    # Of one person: people with sampling weights are capped by how much they count, and then count as often.
    weight = jnp.where(use > 0.0, capped(use / found.variance, least) / jnp.where(use > 0.0, use, 1.0), 0.0)
    response = weight * found.outcome
    log = link.family.log_density(outcome, predictor, dispersion)
    level = log - (response - weight * point) * point - 0.5 * weight * point**2
    return _Expansion(weight, response, spread_out(level, use, least), predictor)


def linear_predictor(features: Array, common: Array, site: Array) -> Float[Array, "n 2"]:
    """The predictor in both arms from common and site coefficients."""
    contrasts = features @ common.T + features[:, : site.shape[1]] @ site.T
    return contrasts @ jnp.asarray(CODES).T


def sums_of(reply: Statistics, index: int, sites: int) -> RegressionStatistics:
    """The sums of one batch entry of an aggregated reply."""
    parts: Arrays = {**reply.summed, **reply.per_site}
    if not reply.per_site:  # sites do not differ: the terms of a single one, with a variance of zero
        score = np.asarray(reply.summed["score"])
        nothing = np.zeros((len(score), sites, 2, 1))
        parts |= {"cross": np.zeros((len(score), sites, 2, 1, score.shape[-1])), "site_score": nothing}
    found = {name: jnp.asarray(parts[name][index]) for name in RegressionStatistics._fields}
    return RegressionStatistics(**{**found, "gram": unpack(found["gram"])})


class Outline(eqx.Module):
    """The variance group of each coefficient, [shared, effect] × features, common and by site."""

    common: tuple[int, ...] = eqx.field(static=True)
    site: tuple[int, ...] = eqx.field(static=True)
    expected: tuple[float, ...] = eqx.field(static=True)
    linked: bool = eqx.field(static=True)
    """Whether outcomes have a link: 0/1 outcomes and counts, whose working responses have unit noise."""


def outline(design: Design, width: int, *, differ: bool, family: str) -> Outline:
    """Variance groups and their prior expectations for standardised outcomes.

    Group 0 holds the intercepts and is fixed. For (shared, effect), groups 1–2 are linear and 3–4 Fourier
    coefficients; 5–10 are the same for site terms (intercept, linear, Fourier); the last two are the noise.
    """
    part, linear = design.part, 1.0 / max(design.linear, 1)
    scale, linked = SCALES[family], family != "continuous"
    common = [np.select([part == 0, part == 1], [0, 1 + effect], 3 + effect) for effect in (0, 1)]
    site = [
        np.select([part == 0, part == 1], [5 + effect, 7 + effect], 9 + effect)[:width] for effect in (0, 1)
    ]
    expected = [1.0, linear, 0.5 * linear, 0.2, 0.1]
    expected += [0.05, 0.02, 0.2 * linear, 0.1 * linear, 0.05, 0.02] if differ else [1e-12] * 6
    return Outline(
        tuple(np.concatenate(common).tolist()),
        tuple(np.concatenate(site).tolist()),
        (*[scale * size for size in expected], *((1.0, 1.0) if linked else (0.4, 0.4))),
        linked,
    )


NOTHING = 1e-9
"""Variances of coefficients in which sites do not differ are expected to be smaller than this."""


def learned_variances(outline: Outline) -> np.ndarray:
    """Indices of the variances that are used and not fixed."""
    last = len(outline.expected)
    used = {*outline.common, *outline.site, *(() if outline.linked else (last - 2, last - 1))}
    return np.array(sorted(i for i in used if i != 0 and outline.expected[i] > NOTHING))


def site_terms(outline: Outline) -> np.ndarray:
    """Whether sites differ in each coefficient; the others are exactly zero, the same for every site."""
    return np.array(outline.expected)[np.array(outline.site).ravel()] > NOTHING


def assemble(sums: RegressionStatistics, noise: Array) -> pooling.PoolingSums:
    """The sums of the pooled regression, divided by the noise variance."""
    codes = jnp.asarray(CODES)
    products = codes[:, :, None] * codes[:, None, :] / noise[:, None, None]
    scaled = codes / noise[:, None]
    sites, _, width, size = sums.cross.shape
    cross = jnp.einsum("auv,mawf->muwvf", products, sums.cross)
    return pooling.PoolingSums(
        gram=jnp.einsum("auv,afg->ufvg", products, sums.gram).reshape(2 * size, 2 * size),
        score=jnp.einsum("au,af->uf", scaled, sums.score).reshape(-1),
        site_gram=cross[..., :width].reshape(sites, 2 * width, 2 * width),
        site_cross=cross.reshape(sites, 2 * width, 2 * size),
        site_score=jnp.einsum("au,maw->muw", scaled, sums.site_score).reshape(sites, -1),
    )


def prior_of(outline: Outline, variances: Array) -> pooling.PoolingPrior:
    """The Gaussian prior of common and site coefficients."""
    root = jnp.sqrt(variances)
    return pooling.PoolingPrior(
        jnp.diag(root[np.array(outline.common)]), jnp.diag(root[np.array(outline.site)])
    )


def beyond_solve(outline: Outline, log_variances: Array, sums: RegressionStatistics) -> Array:
    """Terms of the log evidence without coefficients, plus the log prior of the variances."""
    noise = jnp.exp(log_variances[-2:])  # equal to one for outcomes with a link
    rest = jnp.sum(sums.people * jnp.log(2.0 * jnp.pi * noise) + sums.square / noise)
    level = sums.level if outline.linked else -0.5 * rest
    deviation = (log_variances - jnp.log(jnp.asarray(outline.expected))) / SPREAD
    return level - 0.5 * jnp.sum(deviation**2)


class PartlyShared(eqx.Module):
    """Partial pooling, θ_s = θ + B b_s. See `unpooled.methods.causal_rff.observed.modes.SiteTerms`."""

    outline: Outline = eqx.field(static=True)

    @property
    def linked(self) -> bool:
        return self.outline.linked

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
        found = pooling.posterior(*self._system(point, sums))
        return found.log_evidence + beyond_solve(self.outline, point, sums)

    def coefficients(self, point: Array, sums: RegressionStatistics, key: Array | None) -> dict[str, Array]:
        pooled, prior = self._system(point, sums)
        found = pooling.coefficients(pooling.posterior(pooled, prior), prior, key)
        site, differ = found.site, site_terms(self.outline)
        new = jnp.zeros(site.shape[1])  # the terms of another site, from their prior
        if key is not None:
            new = prior.site @ jax.random.normal(jax.random.fold_in(key, 1), new.shape)
        return {
            "common": found.common.reshape(2, -1),
            "site": jnp.where(differ, site, 0.0).reshape(len(site), 2, -1),
            "elsewhere": jnp.where(differ, new, 0.0).reshape(2, -1),
            "noise": jnp.exp(point[-2:]),
        }

    def between_sites(self, point: Array, sums: RegressionStatistics) -> dict[str, Array]:
        return {"borrowed": pooling.borrowed_shares(*self._system(point, sums))}

    def _system(
        self, point: Array, sums: RegressionStatistics
    ) -> tuple[pooling.PoolingSums, pooling.PoolingPrior]:
        variances = jnp.exp(point)
        return assemble(sums, variances[-2:]), prior_of(self.outline, variances)
