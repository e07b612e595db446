"""A site's random numbers depend on all of its secret."""

from __future__ import annotations

import jax
import numpy as np

from unpooled.protocol.rows import HALF, make_rows


def _bits(salt: int) -> list[int]:
    nothing = np.zeros(2)
    rows = make_rows(nothing[:, None], nothing, nothing, fold=nothing, site=0, salt=salt)
    return np.asarray(
        jax.random.key_data(jax.jit(lambda own, key: own.own_key(key))(rows, jax.random.key(1)))
    ).tolist()


def test_both_halves_of_the_salt_count() -> None:
    low, high = 12345, HALF - 2
    keys = [_bits(salt) for salt in (low, low + HALF, low + high * HALF, 0, HALF * HALF - 1)]
    assert len({tuple(key) for key in keys}) == len(keys)


def test_a_salt_that_is_an_index_is_one_word() -> None:
    assert _bits(3) == np.asarray(jax.random.key_data(jax.random.fold_in(jax.random.key(1), 3))).tolist()
