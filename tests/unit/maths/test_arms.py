"""Covariances between two arms."""

from __future__ import annotations

import numpy as np

from unpooled.maths import arms

PARAMETERS = np.array([0.3, -0.7, -0.2])


def test_the_factor_is_the_cholesky_factor_of_the_covariance() -> None:
    factor = np.linalg.cholesky(np.asarray(arms.covariance(PARAMETERS)))
    np.testing.assert_allclose(arms.factor(PARAMETERS), factor, rtol=1e-12)
    np.testing.assert_allclose(np.diag(factor), np.exp(PARAMETERS[[0, 2]]))


def test_a_batch_of_parameters_gives_a_batch_of_covariances() -> None:
    many = np.stack([PARAMETERS, 2 * PARAMETERS])
    np.testing.assert_allclose(arms.covariance(many)[1], arms.covariance(many[1]))


def test_every_pair_of_people_gets_the_entry_of_their_arms() -> None:
    matrix = np.array([[1.0, 2.0], [3.0, 4.0]])
    found = arms.between(matrix, np.array([0.0, 1.0]), np.array([1.0, 0.0, 1.0]))
    np.testing.assert_array_equal(found, [[2.0, 1.0, 2.0], [4.0, 3.0, 4.0]])
