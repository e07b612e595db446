"""Basis functions carry the part of a kernel that the inducing inputs explain."""

from __future__ import annotations

import numpy as np

from unpooled.maths.basis import JITTER, inducing_features, line_features
from unpooled.maths.kernels import kernel_matrix

RNG = np.random.default_rng(1)
PEOPLE, INDUCING = RNG.normal(size=(7, 3)), RNG.normal(size=(5, 3))


def test_products_of_features_are_the_explained_part_of_the_kernel() -> None:
    features = np.asarray(inducing_features("matern52", PEOPLE, INDUCING, 1.5))
    inner = np.asarray(kernel_matrix("matern52", INDUCING, INDUCING, 1.5)) + JITTER * np.eye(5)
    cross = np.asarray(kernel_matrix("matern52", PEOPLE, INDUCING, 1.5))
    np.testing.assert_allclose(features @ features.T, cross @ np.linalg.solve(inner, cross.T), rtol=1e-9)


def test_people_at_the_inducing_inputs_are_explained_entirely() -> None:
    features = np.asarray(inducing_features("matern32", INDUCING, INDUCING, 1.5))
    whole = kernel_matrix("matern32", INDUCING, INDUCING, 1.5)
    np.testing.assert_allclose(features @ features.T, whole, atol=1e-6)


def test_a_line_is_the_same_as_inputs_with_one_column() -> None:
    grid, index = np.linspace(-2, 2, 6), RNG.normal(size=9)
    line = line_features("matern52", index, grid, 0.8)
    column = inducing_features("matern52", index[:, None], grid[:, None], 0.8)
    np.testing.assert_allclose(line, column, rtol=1e-6, atol=1e-8)


def test_inducing_inputs_that_coincide_do_not_break_the_factor() -> None:
    twice = np.concatenate([INDUCING, INDUCING])
    assert np.all(np.isfinite(inducing_features("squared_exponential", PEOPLE, twice, 2.0)))
