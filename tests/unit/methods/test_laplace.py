"""Draws of hyperparameters about their mode."""

from __future__ import annotations

import jax
import numpy as np
from scipy.stats import multivariate_t

from unpooled.methods.fedci.checks import noise_check
from unpooled.methods.fedci.laplace import PosteriorMode, draw_about, log_proposal, plausible, precision_of
from unpooled.methods.fedci.ridge import propensity_of


def test_no_direction_spreads_beyond_its_prior() -> None:
    rng = np.random.default_rng(0)
    turned, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    prior = np.diag([8.0, 1.0, 4.0, 0.01])
    likelihood = turned @ np.diag([50.0, 3.0, -6.0, -0.5]) @ turned.T  # a saddle, as modes of GPs can be
    precision = precision_of(prior + likelihood, prior)
    floor = np.diag([8.0, 1.0, 4.0, 0.5])
    assert np.linalg.eigvalsh(precision - floor).min() > -1e-9
    narrowed = turned @ np.diag([50.0, 3.0, 0.0, 0.0]) @ turned.T
    np.testing.assert_allclose(precision, floor + narrowed, atol=1e-9)


def test_draws_have_the_precisions_covariance_with_students_tails() -> None:
    root = np.array([[2.0, 0.0, 0.0], [0.5, 1.0, 0.0], [-0.3, 0.2, 0.7]])
    precision = root @ root.T
    mode = {"a": np.array([1.0, -2.0]), "b": np.array([3.0])}
    draws = draw_about(mode, precision, 200_000, 1)
    flat = np.concatenate([leaf.reshape(200_000, -1) for leaf in jax.tree.leaves(draws)], axis=1)
    np.testing.assert_allclose(flat.mean(axis=0), [1.0, -2.0, 3.0], atol=0.03)
    t_variance = 5 / 3
    np.testing.assert_allclose(np.cov(flat.T), t_variance * np.linalg.inv(precision), rtol=0.06, atol=0.03)


def test_the_density_of_the_proposal_is_that_of_the_t_distribution() -> None:
    root = np.array([[2.0, 0.0, 0.0], [0.5, 1.0, 0.0], [-0.3, 0.2, 0.7]])
    centre, precision = np.array([1.0, -2.0, 3.0]), root @ root.T
    mode = PosteriorMode({"a": centre[:2], "b": centre[2:]}, 0.0, precision)
    points = np.random.default_rng(2).normal(size=(6, 3))
    found = log_proposal({"a": points[:, :2], "b": points[:, 2:]}, mode)
    expected = multivariate_t(centre, np.linalg.inv(precision), df=5).logpdf(points)
    np.testing.assert_allclose(found - found[0], expected - expected[0], rtol=1e-9)


def test_draws_that_the_data_contradict_are_left_out() -> None:
    mode = PosteriorMode({}, 10.0, np.eye(2))
    furthest = 0.5 * 13.8155  # half the 99.9 % point of χ² with two degrees of freedom
    values = np.array([10.0, 10.0 + furthest - 0.01, 10.0 + furthest + 0.01, 12.0, 500.0, 11.0])
    assert plausible(values, mode).tolist() == [0, 1, 3, 5]
    # A draw better than the mode moves the region; however poor the approximation, half of them stay.
    assert plausible(values - np.array([0.0, 0, 0, 0, 0, 500.0]), mode).tolist() == [0, 3, 5]


def test_the_propensity_is_a_regression_of_the_treatment_in_units_of_its_fit() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(400, 3)) @ rng.normal(size=(3, 3)) + 0.3
    w = (x[:, 0] + rng.normal(size=400) > 0.0).astype(float)
    ones = np.column_stack([np.ones(400), x])
    gram = np.stack([ones.T @ (ones * arm[:, None]) for arm in (1.0 - w, w)])
    found = propensity_of(gram)
    centred = x - x.mean(axis=0)
    slopes = np.linalg.solve(centred.T @ centred + np.eye(3), centred.T @ w)
    np.testing.assert_allclose(found, slopes / (centred @ slopes).std(), rtol=1e-8)


def test_unequal_noise_of_the_arms_fails_the_check_whichever_arm_it_is() -> None:
    rng = np.random.default_rng(4)
    equal = 0.05 * rng.standard_normal((400, 2))
    assert noise_check(equal).passed
    for arm in (0, 1):
        unequal = equal + 0.25 * (np.arange(2) == arm)
        found = noise_check(unequal)
        assert not found.passed
        expected = np.exp(0.5 - 2.0 * 1.96 * 0.05 * np.sqrt(2.0))
        np.testing.assert_allclose(found.found, expected, rtol=0.05)
