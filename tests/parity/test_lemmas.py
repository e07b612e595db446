"""Lemma 1 and Lemma 2 say the same of one site, and the package's K_obs, K_om and K_mis are Lemma 2's."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from oracle import fedci as oracle
from oracle.world import build
from unpooled.methods.fedci.conditionals import WeightDraws, individual_effect, shared_arms

RNG = np.random.default_rng(3)
PSI, SIGMA = np.array([[1.3, 0.4], [0.4, 0.7]]), np.array([[0.5, -0.2], [-0.2, 0.9]])
X, W = RNG.normal(size=(7, 3)), np.array([0, 1, 1, 0, 1, 0, 0.0])
MEANS = RNG.normal(size=(2, 7))
WITHIN = oracle.kernel("matern52", X, X, 1.7)


def test_lemma_2_is_lemma_1_with_its_rows_sorted_into_seen_and_unseen() -> None:
    mean_1, covariance_1 = oracle.lemma_1(PSI, SIGMA, WITHIN, *MEANS)
    mean_2, covariance_2 = oracle.lemma_2(PSI, SIGMA, WITHIN, *MEANS, W)
    person, arm = np.arange(7), W.astype(int)
    order = np.concatenate([person + 7 * arm, person + 7 * (1 - arm)])
    np.testing.assert_allclose(mean_2, mean_1[order], rtol=1e-12)
    np.testing.assert_allclose(covariance_2, covariance_1[np.ix_(order, order)], rtol=1e-12)


def test_the_dense_model_is_lemma_1_when_one_site_has_only_its_own_function() -> None:
    people = oracle.People(X, np.zeros(7), np.zeros(7, dtype=int), np.arange(7))
    process = oracle.Process(
        PSI, lambda a, b: oracle.kernel("matern52", a.covariates, b.covariates, 1.7), "site"
    )
    model = oracle.Model((process,), SIGMA)
    blocks = [[model.outcomes(people.in_arm(a), people.in_arm(b)) for b in (0, 1)] for a in (0, 1)]
    np.testing.assert_allclose(np.block(blocks), oracle.lemma_1(PSI, SIGMA, WITHIN, *MEANS)[1], rtol=1e-12)


@pytest.mark.slow
def test_the_papers_structure_is_lemma_2_given_the_mean_functions_and_the_shifts() -> None:
    world, site, rho = build("paper"), "south", 0.3
    rows = world.rows(site)
    x, w, y = (np.asarray(part)[:15] for part in (rows.covariates, rows.treatment, rows.outcome))
    rng = np.random.default_rng(2)
    slopes, shift = rng.normal(size=(2, 3)), rng.normal(size=2)
    psi = oracle.arm_covariance(world.free["arms"])
    root = np.linalg.cholesky(psi)
    # The lemma's means stand inside Ψ^½; the package's weights and shifts are what comes out of it.
    beta = np.concatenate([np.zeros((2, 1)), root @ slopes], axis=1)
    draws = WeightDraws(world.free, beta[None], (root @ shift)[None])
    mean_0, mean_1 = (x @ slopes[arm] + shift[arm] for arm in (0, 1))
    sigma = oracle.noise_covariance(world.free["noise"], rho)
    length = np.exp(world.free["length"]) * np.sqrt(3)
    within = oracle.kernel("matern52", x, x, length)
    mean, covariance = oracle.lemma_2(psi, sigma, within, mean_0, mean_1, w)
    both = np.asarray(shared_arms(world.evidence, draws, rows.covariates))[0, :15]
    np.testing.assert_allclose(both[np.arange(15), w.astype(int)], mean[:15], rtol=1e-10)
    observed = world.evidence.observed_covariance(world.free, rows, rows.present)
    np.testing.assert_allclose(np.asarray(observed)[:15, :15], covariance[:15, :15], rtol=1e-7, atol=1e-12)
    gain = np.linalg.solve(covariance[:15, :15], covariance[:15, 15:]).T
    missing = mean[15:] + gain @ (y - mean[:15])
    left = covariance[15:, 15:] - gain @ covariance[:15, 15:]
    effect, variance = individual_effect(world.evidence, draws, rows, None, jnp.asarray(rho))
    np.testing.assert_allclose(np.asarray(effect)[0, :15], (2 * w - 1) * (y - missing), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(variance)[:15], np.diag(left), rtol=1e-6)
