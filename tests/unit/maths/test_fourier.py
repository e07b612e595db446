"""Fourier features against the kernels they stand for."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gamma
from sklearn.gaussian_process.kernels import RBF, Matern, RationalQuadratic
from sklearn.metrics.pairwise import laplacian_kernel

from unpooled.errors import StudyError
from unpooled.maths.fourier import fourier_features, frequencies, kernel_value

INPUTS = np.random.default_rng(0).normal(size=(5, 3))
LENGTH = 1.7
ISOTROPIC = ["gaussian", "matern12", "matern32", "matern52", "rational_quadratic"]
KERNELS = [*ISOTROPIC, "laplacian"]
DRAWS = [(kernel, False) for kernel in KERNELS] + [(kernel, True) for kernel in ISOTROPIC]
SAME = {
    "gaussian": lambda x, length: RBF(length)(x),
    "laplacian": lambda x, length: laplacian_kernel(x, gamma=1.0 / length),
    "matern12": lambda x, length: Matern(length, nu=0.5)(x),
    "matern32": lambda x, length: Matern(length, nu=1.5)(x),
    "matern52": lambda x, length: Matern(length, nu=2.5)(x),
    "rational_quadratic": lambda x, length: RationalQuadratic(length, alpha=1.0)(x),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_are_scikit_learns(kernel: str) -> None:
    found = kernel_value(kernel, INPUTS, INPUTS, LENGTH)
    np.testing.assert_allclose(found, SAME[kernel](INPUTS, LENGTH), rtol=1e-10, atol=2e-8)


@pytest.mark.parametrize(("kernel", "orthogonal"), DRAWS)
def test_products_of_features_are_the_kernel_up_to_chance(kernel: str, orthogonal: bool) -> None:
    drawn = frequencies(kernel, 3, 60_000, rng=np.random.default_rng(11), orthogonal=orthogonal)
    features = np.asarray(fourier_features(drawn, INPUTS, LENGTH))
    pairs = np.triu_indices(5, k=1)
    waves = np.cos(((INPUTS[pairs[0]] - INPUTS[pairs[1]]) / LENGTH) @ drawn.T)
    # Chance between blocks of three: inside a block orthogonal frequencies are not independent.
    blocks = waves.reshape(len(waves), -1, 3).mean(axis=2)
    error = blocks.std(axis=1) / np.sqrt(blocks.shape[1])
    gap = np.abs(features @ features.T - SAME[kernel](INPUTS, LENGTH))[pairs]
    assert np.all(gap < 4.5 * error)
    assert np.all(error < 0.005)


@pytest.mark.parametrize(("kernel", "orthogonal"), DRAWS)
def test_features_have_length_one(kernel: str, orthogonal: bool) -> None:
    features = fourier_features(
        frequencies(kernel, 3, 7, rng=np.random.default_rng(1), orthogonal=orthogonal), INPUTS, LENGTH
    )
    assert features.shape == (5, 14)
    np.testing.assert_allclose((features**2).sum(axis=1), 1.0, rtol=1e-12)


def test_features_are_the_papers() -> None:
    drawn = frequencies("gaussian", 3, 2, rng=np.random.default_rng(1))
    (first, second), x = drawn, INPUTS[0]
    waves = [np.cos(first @ x), np.cos(second @ x), np.sin(first @ x), np.sin(second @ x)]
    np.testing.assert_allclose(fourier_features(drawn, INPUTS[:1], 1.0)[0], np.array(waves) / np.sqrt(2))


@pytest.mark.parametrize(("kernel", "orthogonal"), DRAWS)
def test_every_party_draws_the_same_frequencies(kernel: str, orthogonal: bool) -> None:
    once, again, other = (
        frequencies(kernel, 3, 8, rng=np.random.default_rng(s), orthogonal=orthogonal) for s in (5, 5, 6)
    )
    np.testing.assert_array_equal(once, again)
    assert not np.any(once == other)


@pytest.mark.parametrize(
    ("orthogonal", "expected"),
    [(False, [-1.142192, -0.583120, -1.271796]), (True, [-1.537740, 0.101718, 0.021026])],
    ids=["plain", "orthogonal"],
)
def test_a_seed_stands_for_these_numbers_whatever_the_release_of_numpy(
    orthogonal: bool, expected: list[float]
) -> None:
    drawn = frequencies("matern52", 3, 2, rng=np.random.default_rng(7), orthogonal=orthogonal)
    np.testing.assert_allclose(drawn[1], expected, atol=1e-5)


@pytest.mark.parametrize("kernel", ISOTROPIC)
def test_each_block_is_orthogonal_and_the_last_may_be_cut(kernel: str) -> None:
    drawn = frequencies(kernel, 4, 10, rng=np.random.default_rng(3), orthogonal=True)
    assert drawn.shape == (10, 4)
    for block in (drawn[:4], drawn[4:8], drawn[8:]):
        unit = block / np.linalg.norm(block, axis=1, keepdims=True)
        np.testing.assert_allclose(unit @ unit.T, np.eye(len(block)), atol=1e-12)
    assert np.abs(drawn[:4] @ drawn[4:8].T).min() > 1e-6


@pytest.mark.parametrize("kernel", ISOTROPIC)
def test_orthogonal_frequencies_are_as_long_as_plain_ones(kernel: str) -> None:
    plain, orthogonal = (
        np.linalg.norm(
            frequencies(kernel, 4, 40_000, rng=np.random.default_rng(2), orthogonal=choice), axis=1
        )
        for choice in (False, True)
    )
    shares = np.linspace(0.1, 0.9, 9)
    np.testing.assert_allclose(np.quantile(orthogonal, shares), np.quantile(plain, shares), rtol=0.05)


def test_orthogonal_frequencies_meet_the_gaussian_kernel_more_closely() -> None:
    inputs = np.random.default_rng(4).normal(size=(12, 8))
    exact = SAME["gaussian"](inputs, 3.0)

    def squared_error(seed: int, orthogonal: bool) -> float:
        drawn = frequencies("gaussian", 8, 32, rng=np.random.default_rng(seed), orthogonal=orthogonal)
        features = np.asarray(fourier_features(drawn, inputs, 3.0))
        return float(np.mean((features @ features.T - exact) ** 2))

    plain, orthogonal = (np.mean([squared_error(s, choice) for s in range(60)]) for choice in (False, True))
    assert orthogonal < 0.7 * plain


def test_a_length_scale_stretches_the_inputs_and_redraws_nothing() -> None:
    drawn = frequencies("matern32", 3, 6, rng=np.random.default_rng(1))
    np.testing.assert_allclose(
        fourier_features(drawn, 2.5 * INPUTS, 2.5), fourier_features(drawn, INPUTS, 1.0), rtol=1e-12
    )
    lengths = np.array([0.5, 1.0, 2.0])
    np.testing.assert_allclose(
        fourier_features(drawn, INPUTS, lengths), fourier_features(drawn, INPUTS / lengths, 1.0), rtol=1e-12
    )


def test_features_can_be_followed_as_the_length_scale_moves() -> None:
    drawn = frequencies("gaussian", 3, 6, rng=np.random.default_rng(1))

    def closeness(length: float) -> jax.Array:
        features = fourier_features(drawn, INPUTS, length)
        return features[0] @ features[1]

    step = 1e-6
    expected = (closeness(LENGTH + step) - closeness(LENGTH - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(closeness)(LENGTH), expected, rtol=1e-6)


def gaussian_row(omega: float) -> float:
    return (2 * np.pi) ** -0.5 * np.exp(-(omega**2) / 2)


def laplacian_row(omega: float) -> float:
    return (2 / np.pi) ** 0.5 / (1 + omega**2)


def matern_row(omega: float, nu: float) -> float:
    scale = 2 * np.pi**0.5 * gamma(nu + 0.5) * (2 * nu) ** nu / gamma(nu)
    return scale * (2 * nu + 4 * np.pi**2 * omega**2) ** -(nu + 0.5)


# The paper's rows at d = ℓ = 1, each brought to a density of angular frequency.
TABLE = {
    "gaussian": gaussian_row,
    "laplacian": lambda omega: laplacian_row(omega) / np.sqrt(2 * np.pi),
    "matern12": lambda omega: matern_row(omega / (2 * np.pi), 0.5) / (2 * np.pi),
    "matern32": lambda omega: matern_row(omega / (2 * np.pi), 1.5) / (2 * np.pi),
    "matern52": lambda omega: matern_row(omega / (2 * np.pi), 2.5) / (2 * np.pi),
    # Not in the paper's table: a normal variable whose variance is exponential is a Laplace variable.
    "rational_quadratic": lambda omega: np.exp(-np.sqrt(2.0) * abs(omega)) / np.sqrt(2.0),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("below", [0.5, 2.0])
def test_the_papers_densities_are_ours_once_their_conventions_agree(kernel: str, below: float) -> None:
    share = quad(TABLE[kernel], -below, below)[0]
    drawn = frequencies(kernel, 1, 100_000, rng=np.random.default_rng(9))
    found = np.mean(np.abs(drawn) < below)
    assert abs(found - share) < 4.5 * np.sqrt(share * (1 - share) / 100_000)


def test_orthogonal_frequencies_of_a_product_kernel_are_refused() -> None:
    with pytest.raises(StudyError, match="isotropic"):
        frequencies("laplacian", 3, 6, rng=np.random.default_rng(1), orthogonal=True)


def test_a_misspelt_kernel_is_refused_with_the_nearest() -> None:
    with pytest.raises(StudyError, match="did you mean 'gaussian'"):
        frequencies("gausian", 3, 6, rng=np.random.default_rng(1))


@pytest.mark.parametrize(("dimension", "count"), [(0, 4), (3, 0)])
def test_nothing_to_draw_is_refused(dimension: int, count: int) -> None:
    with pytest.raises(StudyError, match="at least one input column and one frequency"):
        frequencies("gaussian", dimension, count, rng=np.random.default_rng(1))
