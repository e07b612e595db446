"""Counts that vary more than Poisson ones: density, working response and dispersion against definitions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracle import negative_binomial as oracle
from unpooled.models.dispersion import LEAST, MOST, POINTS, draw_dispersion, log_densities
from unpooled.models.outcome_family import NegativeBinomial, Poisson, individual_effect
from unpooled.protocol.rows import make_rows

FAMILY = NegativeBinomial(jnp.asarray(2.0), jnp.asarray(1.5))
COUNTS, PREDICTORS, DISPERSIONS = (0, 1, 4, 17), (-1.2, 0.3, 2.1), (0.05, 1.0, 6.0)
CASES = [(y, eta, alpha) for y in COUNTS for eta in PREDICTORS for alpha in DISPERSIONS]


def test_the_log_density_is_that_of_a_gamma_mixture_of_poisson_counts() -> None:
    y, eta, alpha = (jnp.asarray(part, float) for part in zip(*CASES, strict=True))
    found = np.asarray(FAMILY.log_density(y, eta, alpha))
    products = [oracle.log_chance(y, np.exp(eta), alpha) for y, eta, alpha in CASES]
    np.testing.assert_allclose(found, products, rtol=1e-9, atol=1e-9)
    for place in (0, 8, 13, 20, 31):
        count, predictor, dispersion = CASES[place]
        mixed = oracle.chance(count, np.exp(predictor), dispersion)
        assert np.exp(found[place]) == pytest.approx(mixed, rel=1e-5, abs=1e-9)


def test_without_dispersion_it_is_poisson() -> None:
    y, eta = jnp.arange(12.0), jnp.linspace(-1.0, 2.0, 12)
    plain = Poisson(FAMILY.rate, FAMILY.sd)
    small = jnp.full(12, 1e-9)
    np.testing.assert_allclose(FAMILY.log_density(y, eta, small), plain.log_density(y, eta), atol=1e-5)
    for one, other in zip(FAMILY.working(y, eta, small), plain.working(y, eta), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize(("eta", "alpha"), [(0.3, 1.0), (1.2, 0.05), (-0.7, 3.0)])
def test_the_working_response_is_fisher_scoring(eta: float, alpha: float) -> None:
    for count in (0, 3, 9):
        found = FAMILY.working(jnp.asarray(float(count)), jnp.asarray(eta), jnp.asarray(alpha))
        score, information = oracle.scoring(count, eta, alpha)
        np.testing.assert_allclose(found.weight, information, rtol=1e-4)
        np.testing.assert_allclose(found.weight * found.residual, score, rtol=1e-6, atol=1e-6)


def people(dispersion: float, count: int = 80) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    eta = 0.6 + 0.5 * rng.standard_normal(count)
    return rng.poisson(np.exp(eta) * rng.gamma(1.0 / dispersion, dispersion, count)).astype(float), eta


def test_sums_of_log_densities_are_those_of_the_arms_and_add_up_over_sites() -> None:
    y, eta = people(1.0)
    arms = jnp.asarray(np.stack([np.arange(80) % 3 == 0, np.arange(80) % 3 > 0]).astype(float))
    whole = log_densities(FAMILY, jnp.asarray(y), jnp.asarray(eta), arms, jnp.asarray(0.0))
    parts = [
        log_densities(FAMILY, jnp.asarray(y[at]), jnp.asarray(eta[at]), arms[:, at], jnp.asarray(0.0))
        for at in (slice(0, 30), slice(30, 80))
    ]
    np.testing.assert_allclose(parts[0] + parts[1], whole, rtol=1e-10)
    for place in (0, 6, 11):
        each = [
            oracle.log_chance(int(one), np.exp(two), np.exp(POINTS[place]))
            for one, two in zip(y, eta, strict=True)
        ]
        np.testing.assert_allclose(whole[:, place], np.asarray(arms) @ each, rtol=1e-8)


def test_no_person_dominates_a_sum_of_log_densities() -> None:
    y, eta = people(0.5)
    y[0] = 200.0
    arms = jnp.asarray(np.stack([np.ones(80), np.zeros(80)]))
    without, limited = (
        log_densities(FAMILY, jnp.asarray(y), jnp.asarray(eta), arms, jnp.asarray(least))
        for least in (0.0, 5.0)
    )
    others = log_densities(FAMILY, jnp.asarray(y[1:]), jnp.asarray(eta[1:]), arms[:, 1:], jnp.asarray(0.0))
    assert without[0, 0] - others[0, 0] < -500.0  # almost Poisson, such a count is impossible
    assert -50.0 < limited[0, 0] - others[0, 0] < 0.0
    assert np.all(np.asarray(limited[1]) == 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("dispersion", [0.02, 1.0, 4.0])
def test_the_dispersion_is_drawn_from_its_posterior(dispersion: float) -> None:
    y, eta = people(dispersion)
    arms = jnp.asarray(np.stack([np.ones(80), np.ones(80)]))
    sums = log_densities(FAMILY, jnp.asarray(y), jnp.asarray(eta), arms, jnp.asarray(0.0))
    many = np.tile(np.asarray(sums), (4000, 1, 1))
    drawn = np.log(draw_dispersion(many, np.random.default_rng(2)))
    mean, sd = oracle.posterior(y, np.exp(eta), np.linspace(np.log(LEAST), np.log(MOST), 301))
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=4.5 * sd / np.sqrt(4000) + 0.01 * sd)
    np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=0.08)
    assert np.exp(drawn.min()) >= LEAST * (1 - 1e-9) and np.exp(drawn.max()) <= MOST * (1 + 1e-9)


def test_drawn_counts_have_the_mean_and_the_variance_of_the_family() -> None:
    eta, alpha = jnp.full(200_000, 0.8), jnp.full(200_000, 1.5)
    drawn = np.asarray(FAMILY.draw(eta, jax.random.key(3), alpha))
    mean = np.exp(0.8)
    assert drawn.mean() == pytest.approx(mean, abs=0.03)
    assert drawn.var() == pytest.approx(mean + 1.5 * mean**2, rel=0.04)


def test_an_individual_effect_draws_the_other_outcome_with_the_dispersion_of_its_arm() -> None:
    count = 60_000
    w = np.arange(count) % 2
    rows = make_rows(np.zeros((count, 1)), w, np.zeros(count), fold=np.zeros(count), site=0)
    both = jnp.tile(jnp.asarray([0.2, 0.9]), (len(rows.present), 1))
    noise = jnp.asarray([0.1, 2.0])
    drawn = np.asarray(individual_effect(FAMILY, both, noise, rows, jnp.asarray(0.0), jax.random.key(1)))
    other = 2.0 - 1.5 * drawn[:count] * (2.0 * w - 1.0)  # the outcome that was seen is 2
    for arm, (eta, alpha) in enumerate(((0.2, 0.1), (0.9, 2.0))):
        mean = np.exp(eta)
        assert other[w != arm].mean() == pytest.approx(mean, rel=0.05)
        assert other[w != arm].var() == pytest.approx(mean + alpha * mean**2, rel=0.1)
