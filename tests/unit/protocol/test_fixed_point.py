"""Fixed-point numbers against Python's integers and fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unpooled.protocol.fixed_point import (
    OutOfRange,
    Scale,
    add,
    from_words,
    scale_for,
    subtract,
    to_words,
)


def integers(words: np.ndarray) -> list[int]:
    """The words as Python's integers modulo 2^(64 × words)."""
    return [sum(int(word) << (64 * k) for k, word in enumerate(reversed(column))) for column in words.T]


@given(st.integers(1, 4), st.data())
def test_sums_and_differences_are_those_of_integers(words: int, data: st.DataObject) -> None:
    numbers = st.lists(st.integers(0, 2**64 - 1), min_size=3 * words, max_size=3 * words)
    edges = st.lists(st.sampled_from([0, 1, 2**64 - 1]), min_size=3 * words, max_size=3 * words)
    first, second = (
        np.array(data.draw(st.one_of(numbers, edges)), np.uint64).reshape(words, 3) for _ in range(2)
    )
    modulus = 2 ** (64 * words)
    for combine, expected in ((add, lambda a, b: a + b), (subtract, lambda a, b: a - b)):
        total = first.copy()
        combine(total, second)
        pairs = zip(integers(first), integers(second), strict=True)
        assert integers(total) == [expected(a, b) % modulus for a, b in pairs]


@given(
    st.integers(1, 4),
    st.integers(-80, 60),
    st.lists(st.floats(-1.0, 1.0, allow_subnormal=False), min_size=1, max_size=8),
)
def test_numbers_are_written_to_their_resolution(words: int, exponent: int, shares: list[float]) -> None:
    scale = Scale(words, exponent, terms=3)
    numbers = np.array(shares) * scale.largest
    found = from_words(to_words(numbers, scale), scale)
    resolution = 2.0 ** (exponent - 64 * (words - 1))
    np.testing.assert_allclose(found, numbers, rtol=1e-15, atol=resolution)
    modulus, unit = 2 ** (64 * words), Fraction(2) ** (exponent - 64 * (words - 1))
    for written, number in zip(integers(to_words(numbers, scale)), numbers, strict=True):
        signed = written - modulus if written >= modulus // 2 else written
        assert abs(signed * unit - Fraction(float(number))) <= unit


@pytest.mark.parametrize("words", [1, 2, 4])
def test_the_largest_terms_can_be_added_up_and_larger_ones_are_refused(words: int) -> None:
    scale = scale_for(1e5, terms=100, words=words)
    assert 1e5 <= scale.largest < 2.1e5
    total = to_words(np.zeros(1), scale)
    for _ in range(100):
        add(total, to_words(np.array([-scale.largest]), scale))
    assert from_words(total, scale) == pytest.approx(-100 * scale.largest, rel=1e-12)
    for wrong in (2.2e5, -2.2e5, np.nan, np.inf):
        with pytest.raises(OutOfRange):
            to_words(np.array([0.0, wrong]), scale)
