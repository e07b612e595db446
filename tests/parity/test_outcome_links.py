"""FedCI's variational approximation of 0/1 outcomes and counts: that of a pooled table, by quadrature.

Without the variance of the predictor it is Laplace's, which is compared with scikit-learn's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Matern

from oracle.world import posterior_of
from unpooled.methods.fedci import working_response
from unpooled.methods.fedci.conditionals import WeightDraws, factual
from unpooled.methods.fedci.expansion import DISPERSIONS, Dispersion, dispersions
from unpooled.methods.fedci.latent import latent_of_people, latent_of_rows
from unpooled.methods.fedci.model import INTERCEPT_SD, Kernel, Projection
from unpooled.methods.fedci.posterior import Posterior, principal_deviations
from unpooled.methods.fedci.stages import Evidence, FeatureEvidence, KernelEvidence
from unpooled.methods.fedci.working_response import DEVIATIONS, nothing_known
from unpooled.models.link import Link, Observed, link_of
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows, make_rows

RNG = np.random.default_rng(8)
D = 3
X = RNG.normal(size=(60, D))
TREATMENT = RNG.integers(0, 2, 60)
EXPANSIONS = 40
"""Expansions until nothing changes."""
NODES, SHARES = np.polynomial.hermite_e.hermegauss(80)
SHARES = SHARES / SHARES.sum()
FREE = {
    "length": np.array([0.2]),
    "arms": np.array([0.3, 0.0, -0.2]),
    "linear": np.array([-0.7, 0.0, -0.9]),
    "propensity_slope": np.array(0.0),
}
ALL = 80
"""All deviations of the weights, with which the variance of everybody's predictor is exact."""


@pytest.fixture(autouse=True)
def all_deviations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_response, "DEVIATIONS", ALL)


UNCOUPLED: dict[str, Any] = {"shifts": False, "coupled": False, "noisy": False}


def kernel_evidence(link: Link, *, diagonal: bool) -> KernelEvidence:
    inducing = jnp.asarray(np.random.default_rng(2).normal(size=(5, D))) if diagonal else jnp.zeros((0, D))
    structure = Kernel(
        site_distances=jnp.zeros((1, 1)),
        family="matern52",
        inducing=inducing,
        ard=False,
        tied=False,
        **UNCOUPLED,
    )
    return KernelEvidence(structure, link, diagonal=diagonal)


def projection_evidence(link: Link) -> FeatureEvidence:
    structure = Projection(
        site_distances=jnp.zeros((3, 3)), family="matern52", correlation=jnp.eye(D), components=2, **UNCOUPLED
    )
    return FeatureEvidence(structure, link)


def rows_of(
    link: Link, outcome: np.ndarray, people: slice = slice(None), fold: Any = 0, site: int = 0
) -> Rows:
    standard = (outcome - float(link.family.rate)) / float(link.family.sd)
    folds = np.broadcast_to(fold, outcome.shape)[people]
    return make_rows(X[people], TREATMENT[people], standard[people], fold=folds, site=site)


def outcome_of(family: str) -> np.ndarray:
    predictor = 0.8 * X[:, 0] + 0.5 * np.sin(2.0 * X[:, 1]) + TREATMENT * (0.4 + 0.5 * X[:, 2])
    if family == "binary":
        return RNG.binomial(1, 1.0 / (1.0 + np.exp(-predictor))).astype(float)
    return RNG.poisson(np.exp(predictor) * RNG.gamma(2.0, 0.5, len(X))).astype(float)


def expanded(
    evidence: Evidence, free: Arrays, sites: list[Rows], fold: int = -1, dispersion: float = 0.0
) -> tuple[Posterior, Arrays]:
    """The posterior once the point of expansion is its mean."""
    # Without a direction of the propensities, the prior is that of the features alone.
    fixed = {"fold": np.array(fold), "noise": np.zeros(2), "propensity": np.zeros(D)}
    fixed |= {"rows": np.ones(2), "direction": np.ones((2, D))}
    start = nothing_known(jax.tree.map(lambda leaf: np.asarray(leaf)[None], free), evidence.structure.width)
    about = jax.tree.map(lambda leaf: leaf[0], start) | {"dispersion": np.full(2, dispersion)}
    told = jax.jit(lambda about, rows: evidence.statistics(Parameters(free, {**fixed, "about": about}), rows))

    def again(about: Arrays) -> tuple[Posterior, Arrays]:
        each = [told(about, rows) for rows in sites]
        summed = jax.tree.map(lambda *leaves: np.sum(leaves, axis=0), *[one.summed for one in each])
        found = posterior_of(evidence, Parameters(free, fixed), Statistics(summed, {}))
        deviations = principal_deviations(evidence, [found], ALL)[0]
        return found, about | {"beta": found.weights()[0][0], "deviations": deviations, "known": np.ones(())}

    found, about = again(about)
    for _ in range(EXPANSIONS):
        found, about = again(about)
    return found, about


# ------------------------------------------------------- the nearest normal distribution


class Expected(NamedTuple):
    """E[ℓ'] and E[−ℓ''] for each person."""

    slope: np.ndarray
    curvature: np.ndarray


def expected_slopes(
    link: Link, outcome: np.ndarray, mean: np.ndarray, variance: np.ndarray, dispersion: float
) -> Expected:
    """For normal predictors: of counts by fine quadrature, of log odds by MacKay's approximation."""
    if not link.counts:
        kappa = 1.0 / np.sqrt(1.0 + np.pi * variance / 8.0)
        rate = 1.0 / (1.0 + np.exp(-kappa * mean))
        return Expected(outcome - rate, kappa * rate * (1.0 - rate))
    rate = np.exp(mean[:, None] + np.sqrt(variance)[:, None] * NODES)
    excess, seen = 1.0 + dispersion * rate, outcome[:, None]
    curvature = rate * (1.0 + dispersion * seen) / excess**2
    return Expected(((seen - rate) / excess) @ SHARES, curvature @ SHARES)


def nearest_normal(
    design: np.ndarray, prior: np.ndarray, outcome: np.ndarray, link: Link, dispersion: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the normal distribution of the weights that is nearest to their posterior in KL
    divergence, from one table: by natural gradients, in short steps."""
    offset, unit = float(link.offset), float(link.unit)
    before = np.linalg.inv(prior)
    precision, mean = before.copy(), np.zeros(design.shape[1])
    for _ in range(600):
        spread = unit**2 * np.einsum("nf,nf->n", design, np.linalg.solve(precision, design.T).T)
        slope, curvature = expected_slopes(link, outcome, offset + unit * design @ mean, spread, dispersion)
        precision = 0.7 * precision + 0.3 * (before + unit**2 * (design.T * curvature) @ design)
        mean = mean + 0.3 * np.linalg.solve(precision, unit * design.T @ slope - before @ mean)
    return mean, np.linalg.inv(precision)


@pytest.mark.parametrize("variance", [0.01, 0.3, 1.0])
def test_0_1_outcomes_tell_less_of_a_function_that_varies_more(variance: float) -> None:
    """As the prior of directions takes it: the expected weight, relative to that at probability one half."""
    link = link_of("binary", 0.5, 0.5)
    assert link is not None
    nodes = np.linspace(-8.0, 8.0, 4001)
    shares = np.exp(-0.5 * nodes**2)
    rate = 1.0 / (1.0 + np.exp(-float(link.unit) * np.sqrt(variance) * nodes))
    exact = 4.0 * (rate * (1.0 - rate)) @ shares / shares.sum()
    np.testing.assert_allclose((1.0 + link.saturation * variance) ** -0.5, exact, rtol=0.06)


def test_the_deviations_that_are_sent_have_the_variance_of_all() -> None:
    """On average over people, weighted by what their outcomes tell."""
    outcome = outcome_of("binary")
    link = link_of("binary", outcome.mean(), outcome.std())
    assert link is not None
    evidence = projection_evidence(link)
    free = evidence.structure.start(np.ones((2, D)), np.ones(2))
    found, _ = expanded(evidence, free, [rows_of(link, outcome)])
    gram = found.regression.sums.gram[..., :-1, :-1]
    every, few = (principal_deviations(evidence, [found], count)[0] for count in (ALL, DEVIATIONS))
    assert len(few) < len(every)
    total, sent = (np.einsum("kaf,abfg,kbg->", one, gram, one) for one in (every, few))
    np.testing.assert_allclose(sent, total, rtol=1e-5)


@pytest.mark.parametrize("variance", [0.0, 0.5, 4.0, 30.0])
def test_expected_derivatives_of_a_0_1_outcome_are_near_those_by_quadrature(variance: float) -> None:
    link = link_of("binary", 0.3, np.sqrt(0.21))
    assert link is not None
    predictor, outcome = np.linspace(-6.0, 6.0, 25), np.ones(25)
    nodes, shares = np.linspace(-8.0, 8.0, 4001), np.exp(-0.5 * np.linspace(-8.0, 8.0, 4001) ** 2)
    rate = 1.0 / (1.0 + np.exp(-predictor[:, None] - np.sqrt(variance) * nodes))
    given = (outcome, predictor, np.full(25, variance), np.zeros(25))
    found = link.family.expected_working(*map(jnp.asarray, given))
    exact = (1.0 - rate) @ shares / shares.sum()
    np.testing.assert_allclose(found.weight * found.residual, exact, atol=0.02)
    exact = (rate * (1.0 - rate)) @ shares / shares.sum()
    np.testing.assert_allclose(found.weight, exact, atol=0.015)


@pytest.mark.parametrize("family", ["binary", "count"])
def test_weights_have_the_nearest_normal_distribution_to_their_posterior_given_the_stacked_table(
    family: str,
) -> None:
    outcome, dispersion = outcome_of(family), 0.6 if family == "count" else 0.0
    link = link_of(family, outcome.mean(), outcome.std())
    assert link is not None
    evidence = projection_evidence(link)
    directions = np.array([[1.0, 0.3, -0.2], [-0.4, 0.2, 0.9]])
    free = evidence.structure.start(directions, np.ones(2))
    sites = [
        rows_of(link, outcome, slice(*ends), site=s) for s, ends in enumerate([(0, 13), (13, 40), (40, 60)])
    ]
    found, _ = expanded(evidence, free, sites, dispersion=dispersion)
    features = np.asarray(evidence.structure.features(free, jnp.asarray(X)))
    design = np.einsum("na,nf->nfa", np.stack([1 - TREATMENT, TREATMENT], axis=1), features).reshape(60, -1)
    factors = np.asarray(evidence.structure.feature_factors(free))
    size = 2 * len(factors)
    prior = np.zeros((size, size))
    for place, factor in enumerate(factors):
        prior[2 * place : 2 * place + 2, 2 * place : 2 * place + 2] = factor @ factor.T
    expected, covariance = nearest_normal(design, prior, outcome, link, dispersion)
    units = np.eye(2 * (len(factors) + 1))
    beta = found.weights()[0][0]
    np.testing.assert_allclose(beta, expected.reshape(-1, 2).T, rtol=1e-6, atol=1e-7)
    moved = found.weights(units)[0] - beta
    np.testing.assert_allclose(
        np.einsum("jaf,jbg->fagb", moved, moved).reshape(size, size), covariance, rtol=1e-5, atol=1e-8
    )


# --------------------------------------------------------------------- scikit-learn


class AtMode(Link):
    """Expands the likelihood at the mean, whatever the variance: Laplace's approximation."""

    def expected(self, outcome: Array, latent: Array, variance: Array, dispersion: Array) -> Observed:
        return super().expected(outcome, latent, jnp.zeros_like(variance), dispersion)


def kernel() -> Any:
    function = ConstantKernel(np.exp(2 * FREE["arms"][2])) * Matern(
        float(np.exp(FREE["length"][0]) * np.sqrt(D)), nu=2.5
    )
    linear = ConstantKernel(np.exp(2 * FREE["linear"][2])) * DotProduct(sigma_0=0.0, sigma_0_bounds="fixed")
    return function + linear + ConstantKernel(INTERCEPT_SD**2)


class HeldOut(NamedTuple):
    """What is known of the latent function of the treated among the last twelve people, who are held out."""

    mean: np.ndarray
    variance: np.ndarray
    treated: np.ndarray
    """The treated people who are not held out."""
    asked: np.ndarray


def held_out(link: Link, outcome: np.ndarray) -> HeldOut:
    evidence = kernel_evidence(link, diagonal=False)
    fold = np.repeat([0, 1], [48, 12])
    rows = rows_of(link, outcome, fold=fold)
    found, about = expanded(evidence, FREE, [rows], fold=1)
    weights = rows.present * (rows.fold != 1)
    units = np.concatenate(
        [np.zeros((1, 2 * (evidence.structure.width + 1))), np.eye(2 * (evidence.structure.width + 1))]
    )
    beta, _ = found.weights(units)
    drawn = WeightDraws(FREE, jnp.asarray(beta), jnp.zeros((len(beta), 2)), about)
    each, remainder = map(np.asarray, factual(evidence, drawn, rows, weights))
    slopes = each[1:] - each[0]
    variance = np.sum(slopes**2, axis=0) + remainder
    asked = np.flatnonzero((fold == 1) & (TREATMENT == 1))
    return HeldOut(each[0, asked], variance[asked], np.flatnonzero((fold == 0) & (TREATMENT == 1)), asked)


def test_at_the_mode_the_latent_function_of_an_arm_is_that_of_scikit_learns_classifier() -> None:
    outcome, plain = outcome_of("binary"), link_of("binary", 0.5, 0.5)
    assert plain is not None
    found = held_out(AtMode(plain.family, jnp.zeros(()), jnp.ones(()), plain.noise), outcome)
    known = GaussianProcessClassifier(kernel(), optimizer=None, max_iter_predict=200)  # type: ignore[arg-type]
    known.fit(X[found.treated], outcome[found.treated])
    mean, spread = known.latent_mean_and_variance(X[found.asked])
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(found.variance, spread, rtol=1e-5)


def test_the_latent_function_of_an_arm_has_the_nearest_normal_distribution() -> None:
    """With a remainder at the site, whose people it knows only together with the weights."""
    outcome, plain = outcome_of("binary"), link_of("binary", 0.5, 0.5)
    assert plain is not None
    link = Link(plain.family, jnp.zeros(()), jnp.ones(()), plain.noise)
    found = held_out(link, outcome)
    prior, cross = kernel()(X[found.treated]), kernel()(X[found.treated], X[found.asked])
    mean, covariance = nearest_normal(np.eye(len(prior)), prior, outcome[found.treated], link, 0.0)
    slopes = np.linalg.solve(prior, cross)
    own = kernel().diag(X[found.asked]) - np.sum(slopes * cross, axis=0)
    np.testing.assert_allclose(found.mean, slopes.T @ mean, rtol=1e-4, atol=1e-6)
    variance = own + np.einsum("nk,nm,mk->k", slopes, covariance, slopes)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-4)


# ------------------------------------------------------------------- draws and dispersion


@pytest.mark.parametrize("diagonal", [False, True])
def test_joint_draws_of_the_sites_people_have_their_means_and_variances(diagonal: bool) -> None:
    """A draw of everybody at once, person by person, has the moments of single people."""
    outcome = outcome_of("binary")
    link = link_of("binary", outcome.mean(), outcome.std())
    assert link is not None
    evidence, rows = kernel_evidence(link, diagonal=diagonal), rows_of(link, outcome)
    _, about = expanded(evidence, FREE, [rows])
    count = 20_000
    beta = jnp.broadcast_to(about["beta"], (count, *about["beta"].shape))
    drawn = WeightDraws(FREE, beta, jnp.zeros((count, 2)), about)
    joint = np.asarray(latent_of_rows(evidence, drawn, rows, jax.random.key(1)))[:, :60]
    own = joint[:, np.arange(60), TREATMENT]
    one = drawn._replace(beta=beta[:1], shift=jnp.zeros((1, 2)))
    if diagonal:
        seen = evidence.observed(FREE, about, rows, rows.present)
        prior = np.asarray(evidence.remainder_covariance(FREE, rows))[:60]
        residual, noise = (
            np.asarray(leaf)[:60] for leaf in (seen.outcome - _shared(evidence, one, rows), seen.variance)
        )
        mean = _shared(evidence, one, rows)[:60] + prior / (prior + noise) * residual
        variance = prior - prior**2 / (prior + noise)
    else:
        people = np.asarray(latent_of_people(evidence, drawn, rows, jnp.asarray(X), jax.random.key(2)))
        chosen = people[:, np.arange(60), TREATMENT]
        mean, variance = chosen.mean(axis=0), chosen.var(axis=0)
    error = np.sqrt(2.0 * variance / count)
    assert np.all(np.abs(own.mean(axis=0) - mean) < 5.0 * error + 1e-3)
    np.testing.assert_allclose(own.var(axis=0), variance, rtol=0.06, atol=1e-5)


def _shared(evidence: KernelEvidence, drawn: WeightDraws, rows: Rows) -> np.ndarray:
    features = np.asarray(evidence.structure.features(FREE, rows.covariates))
    treatment = np.asarray(rows.treatment).astype(int)
    return np.sum(features * np.asarray(drawn.beta)[0][treatment], axis=1)


def test_the_dispersion_makes_squared_pearson_residuals_one_on_average() -> None:
    outcome = outcome_of("count")
    link = link_of("count", outcome.mean(), outcome.std())
    assert link is not None
    evidence = projection_evidence(link)
    free = evidence.structure.start(np.ones((2, D)), np.ones(2))
    rows = rows_of(link, outcome)
    _, about = expanded(evidence, free, [rows], dispersion=0.5)
    told = Dispersion(evidence).statistics(Parameters(fixed={"fold": np.array(-1), "about": about}), rows)
    found = dispersions(jax.tree.map(lambda leaf: np.asarray(leaf)[None], told.summed))[0]
    features = np.asarray(evidence.structure.features(free, jnp.asarray(X)))
    for arm in (0, 1):
        # E[(y − μ)²] of a log-normal μ, with the variance of a count that has its mean.
        people = features[arm == TREATMENT]
        spread = float(link.unit) ** 2 * np.sum((people @ about["deviations"][:, arm].T) ** 2, axis=1)
        centre = float(link.offset) + float(link.unit) * people @ about["beta"][arm]
        means = np.exp(centre[:, None] + np.sqrt(spread)[:, None] * NODES)
        y, mean = outcome[arm == TREATMENT], means @ SHARES
        square = (y[:, None] - means) ** 2 @ SHARES
        pearson = np.mean(square / (mean + found[arm] * mean**2))
        inside = DISPERSIONS[0] < found[arm] < DISPERSIONS[-1]
        assert abs(pearson - 1.0) < 0.03 if inside else pearson < 1.0
