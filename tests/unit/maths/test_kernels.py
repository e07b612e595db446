"""Kernels against textbook forms, and their slopes where distances vanish."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern

from unpooled.maths.kernels import correlation, kernel_matrix, slope_variance, squared_distances

RNG = np.random.default_rng(0)
LEFT, RIGHT = RNG.normal(size=(6, 3)), RNG.normal(size=(4, 3))
SAME = {
    "squared_exponential": RBF,
    "matern32": lambda length: Matern(length, nu=1.5),
    "matern52": lambda length: Matern(length, nu=2.5),
}


@pytest.mark.parametrize("family", SAME)
@pytest.mark.parametrize("length", [0.7, np.array([0.5, 1.0, 2.0])], ids=["one length", "one per column"])
def test_kernels_are_scikit_learns(family: str, length: float | np.ndarray) -> None:
    expected = SAME[family](length)(LEFT, RIGHT)
    np.testing.assert_allclose(kernel_matrix(family, LEFT, RIGHT, length), expected, rtol=1e-10)


def test_distances_by_the_matmul_identity_are_the_plain_ones() -> None:
    expected = ((LEFT[:, None] - RIGHT[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(squared_distances(LEFT, RIGHT), expected, rtol=1e-12)


def test_distances_never_fall_below_zero() -> None:
    close = 1e4 + 1e-9 * RNG.normal(size=(20, 3))
    assert np.min(squared_distances(close, close)) >= 0.0


@pytest.mark.parametrize("family", SAME)
def test_slopes_are_finite_where_two_people_are_alike(family: str) -> None:
    twice = np.concatenate([LEFT, LEFT])
    slope = jax.grad(lambda length: kernel_matrix(family, twice, twice, length).sum())(1.3)
    step = 1e-5
    around = [float(kernel_matrix(family, twice, twice, 1.3 + move).sum()) for move in (step, -step)]
    np.testing.assert_allclose(slope, (around[0] - around[1]) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize("family", ["squared_exponential", "matern32", "matern52"])
def test_the_variance_of_a_slope_is_the_kernels_curvature_at_zero(family: str) -> None:
    step = 1e-3
    curvature = 2.0 * (1.0 - float(correlation(family, np.array(step**2)))) / step**2
    np.testing.assert_allclose(slope_variance(family), curvature, rtol=5e-3)
