"""What is missing given what is seen, against the textbook's formula with an inverse."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from unpooled.maths.normal import given_observed

SIZE = 6


@pytest.fixture(scope="module")
def covariance() -> np.ndarray:
    factor = np.random.default_rng(3).normal(size=(SIZE, SIZE))
    return factor @ factor.T + 0.3 * np.eye(SIZE)


def test_regression_and_spread_are_those_of_the_formula(covariance: np.ndarray) -> None:
    seen = np.random.default_rng(4).random((12, SIZE)) < 0.5
    found = given_observed(jnp.asarray(covariance), jnp.asarray(seen, float))
    for row, known in enumerate(seen):
        blocks = [covariance[np.ix_(a, b)] for a, b in ((~known, known), (known, known), (~known, ~known))]
        slopes = blocks[0] @ np.linalg.inv(blocks[1])
        regression, root = np.asarray(found.regression[row]), np.asarray(found.root[row])
        np.testing.assert_allclose(regression[np.ix_(~known, known)], slopes, rtol=1e-9, atol=1e-11)
        left = blocks[2] - slopes @ blocks[0].T
        np.testing.assert_allclose((root @ root.T)[np.ix_(~known, ~known)], left, rtol=1e-9, atol=1e-11)
        assert not regression[known].any()
        assert not root[known].any()


def test_all_seen_leaves_nothing_and_nothing_seen_leaves_all(covariance: np.ndarray) -> None:
    found = given_observed(jnp.asarray(covariance), jnp.array([np.ones(SIZE), np.zeros(SIZE)]))
    assert not np.asarray(found.root[0]).any()
    assert not np.asarray(found.regression).any()
    root = np.asarray(found.root[1])
    np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-10)
