"""Covariances between two arms; Wishart draws and divergences against moments, SciPy and Monte Carlo."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from unpooled.maths import covariance
from unpooled.maths.covariance import Wishart, divergence, draw_factors, two_arm_wishart

DRAWS = 40_000


def wishart(sd: tuple[float, float], correlation: float, degrees: float) -> Wishart:
    return two_arm_wishart(jnp.array(sd), jnp.array(correlation), jnp.array(degrees))


Q = wishart((0.7, 1.1), 0.4, 6.5)
P = wishart((1.0, 0.6), 0.1, 4.0)


def scale(of: Wishart) -> np.ndarray:
    return np.asarray(of.factor @ of.factor.T)


@pytest.mark.parametrize("which", [Q, P, wishart((0.5, 0.5), 0.9, 2.3)])
def test_draws_have_the_moments_of_a_wishart(which: Wishart) -> None:
    roots = draw_factors(which, jax.random.key(1), DRAWS)
    drawn = np.asarray(roots @ jnp.swapaxes(roots, 1, 2))
    v, d = scale(which), float(which.degrees)
    variance = d * (v**2 + np.outer(np.diag(v), np.diag(v)))
    np.testing.assert_allclose(drawn.mean(0), d * v, atol=4.0 * np.sqrt(variance.max() / DRAWS))
    np.testing.assert_allclose(drawn.var(0), variance, rtol=0.06)


def test_a_drawn_factor_is_the_cholesky_factor() -> None:
    roots = np.asarray(draw_factors(Q, jax.random.key(2), 5))
    np.testing.assert_allclose(np.linalg.cholesky(roots @ roots.swapaxes(1, 2)), roots, rtol=1e-10)


def test_the_diagonal_of_the_mean_is_what_was_asked_for() -> None:
    for degrees in (3.0, 30.0):
        mean = np.asarray(wishart((0.7, 1.1), 0.4, degrees).mean)
        np.testing.assert_allclose(mean, [[0.49, 0.4 * 0.77], [0.4 * 0.77, 1.21]], rtol=1e-12)


@pytest.mark.slow
def test_divergence_agrees_with_monte_carlo() -> None:
    drawn = stats.wishart(df=float(Q.degrees), scale=scale(Q)).rvs(DRAWS, random_state=3)
    stacked = np.moveaxis(drawn, 0, -1)
    logs = [stats.wishart(df=float(w.degrees), scale=scale(w)).logpdf(stacked) for w in (Q, P)]
    difference = logs[0] - logs[1]
    error = difference.std() / np.sqrt(DRAWS)
    assert abs(float(divergence(Q, P)) - difference.mean()) < 4.0 * error
    assert error < 0.02


def test_divergence_from_itself_is_zero_and_never_negative() -> None:
    assert float(divergence(Q, Q)) == pytest.approx(0.0, abs=1e-12)
    assert float(divergence(P, Q)) > 0.0


def test_draws_move_with_the_degrees_of_freedom_as_their_mean_does() -> None:
    """∂E[Ψ]/∂d = V at a fixed V: the gradient passes through the gamma draws."""

    def mean(degrees: jax.Array) -> jax.Array:
        roots = draw_factors(Wishart(Q.factor, degrees), jax.random.key(4), DRAWS)
        return jnp.mean(roots @ jnp.swapaxes(roots, 1, 2), axis=0)

    slope = np.asarray(jax.jacfwd(mean)(Q.degrees))
    np.testing.assert_allclose(slope, scale(Q), atol=0.01)


PARAMETERS = np.array([0.3, -0.7, -0.2])


def test_the_factor_is_lower_triangular_with_a_positive_diagonal() -> None:
    expected = [[np.exp(0.3), 0.0], [-0.7, np.exp(-0.2)]]
    np.testing.assert_allclose(covariance.arm_factor(PARAMETERS), expected, rtol=1e-12)


def test_a_batch_of_parameters_gives_a_batch_of_factors() -> None:
    many = np.stack([PARAMETERS, 2 * PARAMETERS])
    np.testing.assert_allclose(covariance.arm_factor(many)[1], covariance.arm_factor(many[1]))


def test_every_pair_of_people_gets_the_entry_of_their_arms() -> None:
    matrix = np.array([[1.0, 2.0], [3.0, 4.0]])
    found = covariance.between_arms(matrix, np.array([0.0, 1.0]), np.array([1.0, 0.0, 1.0]))
    np.testing.assert_array_equal(found, [[2.0, 1.0, 2.0], [4.0, 3.0, 4.0]])
