"""Draws of hyperparameters about their mode."""

from __future__ import annotations

import jax
import numpy as np

from unpooled.methods.fedci.fit import draw_about, precision_of


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
