"""Kernels against textbook formulas, their slopes at zero distance, and the basis functions made of them."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern, RationalQuadratic

from unpooled.maths.kernels import (
    JITTER,
    correlation,
    inducing_features,
    kernel_matrix,
    line_features,
    slope_variance,
    squared_distances,
)

RNG = np.random.default_rng(0)
LEFT, RIGHT = RNG.normal(size=(6, 3)), RNG.normal(size=(4, 3))
SAME = {
    "squared_exponential": RBF,
    "matern32": lambda length: Matern(length, nu=1.5),
    "matern52": lambda length: Matern(length, nu=2.5),
}
EVERY = {**SAME, "rational_quadratic": lambda length: RationalQuadratic(length, alpha=1.0)}
"""Scikit-learn's rational quadratic kernel has one length-scale only."""


@pytest.mark.parametrize("family", SAME)
@pytest.mark.parametrize("length", [0.7, np.array([0.5, 1.0, 2.0])], ids=["one length", "one per column"])
def test_kernels_are_scikit_learns(family: str, length: float | np.ndarray) -> None:
    expected = SAME[family](length)(LEFT, RIGHT)
    np.testing.assert_allclose(kernel_matrix(family, LEFT, RIGHT, length), expected, rtol=1e-10)


def test_the_rational_quadratic_kernel_is_scikit_learns_of_divided_inputs() -> None:
    length = np.array([0.5, 1.0, 2.0])
    expected = EVERY["rational_quadratic"](1.0)(LEFT / length, RIGHT / length)
    found = kernel_matrix("rational_quadratic", LEFT, RIGHT, length)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_distances_by_the_matmul_identity_are_the_plain_ones() -> None:
    expected = ((LEFT[:, None] - RIGHT[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(squared_distances(LEFT, RIGHT), expected, rtol=1e-12)


def test_distances_never_fall_below_zero() -> None:
    close = 1e4 + 1e-9 * RNG.normal(size=(20, 3))
    assert np.min(squared_distances(close, close)) >= 0.0


@pytest.mark.parametrize("family", EVERY)
def test_slopes_are_finite_where_two_people_are_alike(family: str) -> None:
    twice = np.concatenate([LEFT, LEFT])
    slope = jax.grad(lambda length: kernel_matrix(family, twice, twice, length).sum())(1.3)
    step = 1e-5
    around = [float(kernel_matrix(family, twice, twice, 1.3 + move).sum()) for move in (step, -step)]
    np.testing.assert_allclose(slope, (around[0] - around[1]) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize("family", EVERY)
def test_the_variance_of_a_slope_is_the_kernels_curvature_at_zero(family: str) -> None:
    step = 1e-3
    curvature = 2.0 * (1.0 - float(correlation(family, np.array(step**2)))) / step**2
    np.testing.assert_allclose(slope_variance(family), curvature, rtol=5e-3)


BASIS_RNG = np.random.default_rng(1)
PEOPLE, INDUCING = BASIS_RNG.normal(size=(7, 3)), BASIS_RNG.normal(size=(5, 3))


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
    grid, index = np.linspace(-2, 2, 6), BASIS_RNG.normal(size=9)
    line = line_features("matern52", index, grid, 0.8)
    column = inducing_features("matern52", index[:, None], grid[:, None], 0.8)
    np.testing.assert_allclose(line, column, rtol=1e-6, atol=1e-8)


def test_inducing_inputs_that_coincide_do_not_break_the_factor() -> None:
    twice = np.concatenate([INDUCING, INDUCING])
    assert np.all(np.isfinite(inducing_features("squared_exponential", PEOPLE, twice, 2.0)))
