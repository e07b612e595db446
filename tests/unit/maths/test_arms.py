"""Covariances between two arms."""

from __future__ import annotations

import numpy as np

from unpooled.maths import arms

PARAMETERS = np.array([0.3, -0.7, -0.2])


def test_the_factor_is_lower_triangular_with_a_positive_diagonal() -> None:
    expected = [[np.exp(0.3), 0.0], [-0.7, np.exp(-0.2)]]
    np.testing.assert_allclose(arms.factor(PARAMETERS), expected, rtol=1e-12)


def test_a_batch_of_parameters_gives_a_batch_of_factors() -> None:
    many = np.stack([PARAMETERS, 2 * PARAMETERS])
    np.testing.assert_allclose(arms.factor(many)[1], arms.factor(many[1]))


def test_every_pair_of_people_gets_the_entry_of_their_arms() -> None:
    matrix = np.array([[1.0, 2.0], [3.0, 4.0]])
    found = arms.between(matrix, np.array([0.0, 1.0]), np.array([1.0, 0.0, 1.0]))
    np.testing.assert_array_equal(found, [[2.0, 1.0, 2.0], [4.0, 3.0, 4.0]])
