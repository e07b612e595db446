"""Weights of structures, and shares of draws."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from unpooled.methods.fedci.held_out import simplex_weights
from unpooled.methods.fedci.mixture import mix

ERRORS = st.integers(2, 4).flatmap(lambda n: hnp.arrays("<f8", (n, n + 3), elements=st.floats(-5, 5)))


@given(errors=ERRORS, scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_weights_are_on_the_simplex_and_no_structure_alone_is_better(
    errors: np.ndarray, scale: float
) -> None:
    products = scale * (errors @ errors.T / errors.shape[1] + 1e-3 * np.eye(len(errors)))
    weights = simplex_weights(products)
    assert np.all(weights >= -1e-9)
    np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-9)
    mixed = weights @ products @ weights
    assert mixed <= products.diagonal().min() * (1.0 + 1e-6)
    # Nor is any mixture on the way to one structure: the slope towards each vertex is not downhill.
    slopes = 2.0 * products @ weights - 2.0 * mixed
    assert np.all(slopes >= -2e-3 * np.trace(products))


SHARES = st.lists(st.floats(0.02, 1.0), min_size=1, max_size=4).map(lambda w: np.array(w) / sum(w))


@given(shares=SHARES, count=st.integers(20, 200))
def test_a_mixture_has_as_many_draws_as_asked_in_about_the_given_shares(
    shares: np.ndarray, count: int
) -> None:
    weights = {f"s{i}": float(share) for i, share in enumerate(shares)}
    draws = {name: np.full((3, 4, 2), float(i)) for i, name in enumerate(weights)}
    mixed = mix(draws, weights, count)
    assert mixed.shape == (count, 2)
    for i, share in enumerate(shares):
        assert abs(np.sum(mixed[:, 0] == i) - share * count) <= len(shares)
