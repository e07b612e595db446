"""CausalRFF's counts: sums over sites give the mode of the stacked rows, and draws are from the posterior."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from oracle import counts as oracle
from oracle import latent_classes as classes_oracle
from oracle import negative_binomial
from oracle.causal_rff import DESIGN, LENGTH, design_of, make_tables
from unpooled.methods.causal_rff.classes import count_cells, gibbs
from unpooled.methods.causal_rff.classes.cells import (
    Cells,
    Component,
    Counted,
    Variances,
    improve,
    make_cells,
    solve,
)
from unpooled.methods.causal_rff.classes.log_likelihoods import ClassLogLikelihoods, of_outcome
from unpooled.methods.causal_rff.effects import RegressionModel
from unpooled.methods.causal_rff.observed.regression import (
    PartlyShared,
    Regression,
    outline,
    prior_of,
    sums_of,
)
from unpooled.models.dispersion import LEAST, POINTS, most_probable
from unpooled.models.link import Link, link_of
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows, make_rows

RNG = np.random.default_rng(6)
TABLES = make_tables(2)
X, W, ETA = (np.concatenate(parts) for parts in zip(*TABLES, strict=True))
SITE = np.repeat(np.arange(3), [len(table[2]) for table in TABLES])
Y = RNG.poisson(np.exp(0.4 + 0.6 * ETA) * RNG.gamma(2.0, 0.5, len(ETA))).astype(float)
MEAN, SD = float(Y.mean()), float(Y.std())
DISPERSION = np.array([0.6, 0.3])


def count_link(mean: float = MEAN, sd: float = SD) -> Link:
    found = link_of("count", mean, sd)
    assert found is not None
    return found


def site_rows(least: float = 0.0, outcome: np.ndarray = Y) -> list[Rows]:
    rows = []
    for site in range(3):
        mine = site == SITE
        standard = (outcome[mine] - MEAN) / SD
        rows.append(
            make_rows(
                X[mine], W[mine].astype(float), standard, fold=np.zeros(mine.sum()), site=site, least=least
            )
        )
    return rows


@eqx.filter_jit
def _statistics(stage: Regression, parameters: Parameters, rows: Rows) -> Statistics:
    return stage.statistics(parameters, rows)


def told(stage: Regression, point: Arrays, rows: list[Rows]) -> Statistics:
    fixed = {
        "length": np.array(LENGTH),
        "fold": np.array(-1),
        "common": point["common"],
        "dispersion": DISPERSION,
    }
    each = [
        _statistics(stage, Parameters(fixed=fixed, per_site={"site": point["site"][site]}), one)
        for site, one in enumerate(rows)
    ]
    total = {name: np.asarray([sum(np.asarray(one.summed[name]) for one in each)]) for name in each[0].summed}
    return Statistics(
        total, {name: np.stack([[one.per_site[name] for one in each]]) for name in each[0].per_site}
    )


def converged(terms: PartlyShared, stage: Regression) -> tuple[Arrays, Statistics]:
    """Newton steps over the sites, with variances at their expectation."""
    point = {"common": np.zeros((2, DESIGN.width)), "site": np.zeros((3, 2, 1))}
    solve_mean = jax.jit(lambda sums: terms.coefficients(jnp.asarray(terms.expected), sums, None))
    for _ in range(20):
        reply = told(stage, point, site_rows())
        found = solve_mean(sums_of(reply, 0, 3))
        point = {name: np.asarray(found[name]) for name in ("common", "site")}
    return point, reply


def test_newton_steps_over_the_sites_reach_the_mode_and_evidence_of_the_stacked_rows() -> None:
    link = count_link()
    terms = PartlyShared(outline(DESIGN, 1, differ=True, family="count"))
    point, reply = converged(terms, Regression(DESIGN, link.family, 1, True, link))
    own = np.zeros((len(Y), 6))
    own[np.arange(len(Y)), 2 * SITE], own[np.arange(len(Y)), 2 * SITE + 1] = 1.0, W - 0.5
    design = np.hstack([design_of((X, W, Y)), own])
    variances = np.exp(terms.expected)
    prior = prior_of(terms.outline, jnp.asarray(variances))
    spread = np.concatenate([np.diag(prior.common) ** 2, np.tile(np.diag(prior.site) ** 2, 3)])
    about = (design, spread, np.log(MEAN), float(link.unit), DISPERSION[W])
    expected = oracle.mode(Y, *about)
    found = np.concatenate([point["common"].ravel(), point["site"].ravel()])
    np.testing.assert_allclose(found, expected, atol=2e-5)
    evidence = float(terms.log_evidence(jnp.asarray(terms.expected), sums_of(reply, 0, 3)))
    np.testing.assert_allclose(evidence, oracle.laplace(Y, *about, expected), rtol=1e-7)
    predictor = np.log(MEAN) + float(link.unit) * design @ expected
    for arm in (0, 1):
        mine = arm == W
        each = [
            sum(
                negative_binomial.log_chance(int(y), np.exp(eta), np.exp(POINTS[place]))
                for y, eta in zip(Y[mine], predictor[mine], strict=True)
            )
            for place in (0, 5, 11)
        ]
        np.testing.assert_allclose(reply.summed["dispersion"][0, arm, [0, 5, 11]], each, rtol=1e-6)


def test_no_mean_is_below_0_and_the_missing_outcome_is_a_count() -> None:
    link, rows = count_link(), site_rows()[0]
    model = RegressionModel(DESIGN, link.family, link)
    for _ in range(20):
        draw = {
            "common": 2.0 * RNG.standard_normal((2, DESIGN.width)), "site": RNG.standard_normal((2, 1)),
            "length": np.array(LENGTH), "noise": DISPERSION,
        }  # fmt: skip
        assert np.all(MEAN + SD * np.asarray(model.outcomes(draw, rows)) >= -1e-9)
        effects = SD * np.asarray(model.individual(draw, rows, jax.random.key(1), jnp.zeros(())))
        seen = np.round(MEAN + SD * np.asarray(rows.outcome))
        missing = seen - (2.0 * np.asarray(rows.treatment) - 1.0) * effects
        np.testing.assert_allclose(missing, np.round(missing), atol=1e-6)
        assert missing.min() > -1e-6


def test_nobody_dominates_what_a_site_with_limits_tells() -> None:
    """A coordinator asks about a steep curve, far from which somebody has a large count."""
    link, least = count_link(), 5.0
    outcome = Y.copy()
    far = np.argmin(np.where(SITE == 0, X[:, 0], np.inf))
    outcome[far] = 400.0
    stage = Regression(DESIGN, link.family, 1, True, link)
    common = np.zeros((2, DESIGN.width))
    common[0, 1] = 3.0 / float(link.unit)
    point = {"common": common, "site": np.zeros((3, 2, 1))}

    def people(limit: float) -> tuple[float, float]:
        """On how many people the weights and constants rest."""
        rows = site_rows(limit, outcome)[0]
        features = DESIGN.features(rows.covariates, jnp.asarray(LENGTH))
        parameters = Parameters(
            fixed={"common": point["common"], "dispersion": np.full(2, LEAST)},
            per_site={"site": point["site"][0]},
        )
        found = stage._expanded(parameters, features, rows, rows.present)
        here = np.asarray(rows.present) > 0
        weight, level = np.asarray(found.weight)[here], np.asarray(found.level)[here]
        apart = np.abs(level - np.median(level))
        return tuple(float(np.sum(one**2) / np.max(one) ** 2) for one in (weight, apart))  # type: ignore[return-value]

    assert min(people(0.0)) < least
    assert min(people(least)) > 0.99 * least
    both = [told(stage, point, site_rows(limit, outcome)[:1]).summed["square"] for limit in (0.0, least)]
    assert not np.any(both)


# ------------------------------------------------------------------------ latent classes

CELLS_COUNT = np.array([[12.0, 9.5, 6.0, 14.0], [5.0, 20.0, 11.0, 2.5]])
CELLS_TOTAL = np.array([[30.0, 4.0, 25.0, 50.0], [6.0, 70.0, 60.0, 1.0]])


def count_cells_of(learned: bool, link: Link) -> Cells:
    return make_cells(
        (Component(np.ones((4, 1)), 1.0, learned=False), Component(np.eye(4), 0.5, learned=learned)),
        (Component(np.ones((4, 1)), 0.2, learned=learned),),
        arm=(0, 0, 1, 1),
        binary=False,
        link=link,
    )


def base(link: Link) -> np.ndarray:
    """Log densities at the overall mean of counts that add up to the cells' totals."""
    rng = np.random.default_rng(1)
    people = [rng.negative_binomial(2, 0.5, 40), rng.negative_binomial(2, 0.5, 35)]
    return np.array(
        [
            [oracle.log_chances(one, np.asarray(link.offset), np.exp(log)).sum() for log in POINTS]
            for one in people
        ]
    )


def test_cells_have_the_mode_variances_and_dispersions_of_dense_newton_steps() -> None:
    link = count_link(2.0, 2.4)
    cells, unit, offset = count_cells_of(True, link), float(link.unit), float(link.offset)
    sums = base(link)
    counted = Counted(jnp.asarray(CELLS_COUNT), jnp.asarray(CELLS_TOTAL), jnp.zeros(2), jnp.asarray(sums))
    now = cells.start(2)
    step = jax.jit(lambda now: improve(cells, jnp.ones(4), counted, now))
    for _ in range(60):
        now, means = step(now)
    v = np.array(now.values)
    terms = classes_oracle.Terms(
        np.asarray(cells.common), np.asarray(cells.site), cells.common_of, cells.site_of, 2
    )
    dispersion = v[-2:][[0, 0, 1, 1]]
    theta = np.zeros((2, 4))
    for _ in range(60):
        mean = np.exp(offset + unit * theta)
        weight = unit**2 * CELLS_COUNT * mean / (1.0 + dispersion * mean)
        score = weight * theta + unit * (CELLS_TOTAL - CELLS_COUNT * mean) / (1.0 + dispersion * mean)
        theta, spread = terms.cells(*terms.posterior(v, weight, score), (2, 4))
    np.testing.assert_allclose(means.mean, theta, atol=1e-6)
    np.testing.assert_allclose(means.variance, spread, rtol=1e-5)
    # A fixed point of EM: the variances, and the dispersions on their grid.
    expected, learned = np.array(cells.expected), np.array(cells.learned)
    again = classes_oracle.variance_step(terms, v, expected, learned, 2.0, weight, score)
    np.testing.assert_allclose(again[:3], v[:3], rtol=2e-3)
    curves = []
    for log in POINTS:
        eta, mean = offset + unit * theta, np.exp(offset + unit * theta)
        each = CELLS_TOTAL * (eta - offset)
        alpha = np.exp(log)
        each = each - (CELLS_TOTAL + CELLS_COUNT / alpha) * (
            np.log(1 + alpha * mean) - np.log(1 + alpha * np.exp(offset))
        )
        each = each - 0.5 * spread * unit**2 * CELLS_COUNT * mean / (1.0 + alpha * mean)
        curves.append([each[:, :2].sum(), each[:, 2:].sum()])
    found = np.asarray(most_probable(jnp.asarray(sums + np.array(curves).T)))
    np.testing.assert_allclose(v[-2:], found, rtol=0.03)


def test_the_sum_of_a_cell_says_all_of_its_mean() -> None:
    """ℓ(θ) from people and totals differs from the sum over people by a constant."""
    link, people = count_link(2.0, 2.4), np.array([0.0, 3.0, 1.0, 9.0, 2.0])
    for dispersion in (LEAST, 0.4, 5.0):
        differences = []
        for theta in (-1.5, 0.2, 1.1):
            direct = oracle.log_chances(people, float(link.predictor(jnp.asarray(theta))), dispersion).sum()
            sums = jnp.asarray(len(people), float), jnp.asarray(people.sum())
            differences.append(
                direct
                - float(count_cells.log_likelihood(link, *sums, jnp.asarray(theta), jnp.asarray(dispersion)))
            )
        at_mean = oracle.log_chances(people, float(link.offset), dispersion).sum()
        np.testing.assert_allclose(differences, at_mean, rtol=1e-7)


def test_the_expected_log_likelihood_of_a_class_is_that_of_quadrature_if_little_is_unknown() -> None:
    link, rows = count_link(), site_rows()[0]
    theta, variance = np.array([[0.3, -0.6], [0.8, 0.1]]), np.full((2, 2), 1e-3)
    zeros = jnp.zeros(0)
    likelihoods = ClassLogLikelihoods(
        zeros, zeros, zeros, zeros, zeros, zeros, zeros, jnp.asarray(theta), jnp.asarray(variance),
        jnp.asarray(DISPERSION), zeros,
    )  # fmt: skip
    nodes = np.random.default_rng(0).standard_normal(20_000)
    plain, predictive = (
        np.asarray(of_outcome(likelihoods, rows, binary=False, link=link, predictive=each))
        for each in (False, True)
    )
    seen, arm = np.round(MEAN + SD * np.asarray(rows.outcome)), np.asarray(rows.treatment).astype(int)
    for person in range(3):
        for k in range(2):
            eta = np.log(MEAN) + float(link.unit) * (theta[arm[person], k] + np.sqrt(1e-3) * nodes)
            logs = oracle.log_chances(seen[person], eta, DISPERSION[arm[person]])
            np.testing.assert_allclose(plain[person, k], logs.mean(), atol=5e-3)
            np.testing.assert_allclose(predictive[person, k], np.log(np.exp(logs).mean()), atol=5e-3)


@pytest.mark.parametrize(("dispersion", "total"), [(LEAST, 4.0), (0.5, 21.0), (0.5, 0.0), (4.0, 0.0)])
def test_gibbs_draws_means_of_counts_from_their_posterior(dispersion: float, total: float) -> None:
    """One cell of seven people: the posterior is an integral in one dimension, not normal without events."""
    link = count_link(2.0, 2.4)
    cells: Any = make_cells(
        (Component(np.ones((1, 1)), 1.5, learned=False),),
        (Component(np.ones((1, 1)), 1e-12, learned=False),),
        arm=(0,),
        binary=False,
        link=link,
    )
    chains = 2500  # enough to tell the posterior from Laplace's approximation
    values = np.tile([1.5, 1e-12, dispersion, dispersion], (chains, 1))
    counted = Counted(jnp.full((chains, 1, 1), 7.0), jnp.full((chains, 1, 1), total), jnp.zeros((chains, 2)))
    variances, theta = Variances(jnp.asarray(values), jnp.zeros((chains, 1, 1))), np.zeros((chains, 1, 1))
    rng = np.random.default_rng(3)
    for _ in range(8):
        variances, theta = gibbs._cells(cells, np.ones((chains, 1)), counted, variances, theta, rng)
    grid = np.linspace(-9.0, 6.0, 6001)
    size = 1.0 / dispersion
    eta = float(link.offset) + float(link.unit) * grid

    def log_density(at: np.ndarray) -> np.ndarray:
        said = total * eta - (total + 7.0 * size) * np.log1p(dispersion * np.exp(eta))
        return said - 0.5 * at**2 / 1.5

    known = oracle.cumulative(log_density, grid)
    assert stats.kstest(theta.ravel(), lambda at: np.interp(at, grid, known)).pvalue > 1e-3


def test_the_solve_of_cells_without_people_is_their_prior() -> None:
    link = count_link(2.0, 2.4)
    cells = count_cells_of(False, link)
    nobody = Counted(jnp.zeros((2, 4)), jnp.zeros((2, 4)), jnp.zeros(2), jnp.asarray(base(link)))
    found = solve(cells, jnp.ones(4), nobody, cells.start(2))
    np.testing.assert_allclose(found.mean, 0.0, atol=1e-12)
    np.testing.assert_allclose(found.variance, 1.7, rtol=1e-9)
