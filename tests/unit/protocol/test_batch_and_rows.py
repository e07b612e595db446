"""Batches in chunks, rows with padding."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from unpooled.protocol.batch import CHUNK, in_chunks
from unpooled.protocol.rows import make_rows, padded_size


@pytest.mark.parametrize("size", [1, 2, CHUNK, CHUNK + 1, 3 * CHUNK - 1])
def test_chunks_give_what_one_call_would_have_given(size: int) -> None:
    batch = {"a": np.arange(size, dtype=float), "b": np.arange(2 * size, dtype=float).reshape(size, 2)}

    def function(part: dict) -> dict:
        return {"sum": part["a"] + part["b"].sum(axis=1), "pair": part["b"]}

    found, expected = in_chunks(function, batch), function(batch)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_batches_meet_the_compiler_in_two_sizes_only() -> None:
    sizes = set()

    def function(part: np.ndarray) -> np.ndarray:
        sizes.add(len(part))
        return part

    for size in range(1, 3 * CHUNK):
        in_chunks(function, np.zeros(size))
    assert sizes == {1, CHUNK}


@pytest.mark.parametrize("count", [1, 16, 17, 30, 100])
def test_padding_is_never_present_and_belongs_to_no_fold(count: int) -> None:
    ones = np.ones(count)
    rows = make_rows(np.ones((count, 2)), ones, ones, fold=np.zeros(count), site=3)
    assert rows.covariates.shape == (padded_size(count), 2)
    assert float(rows.present.sum()) == count
    assert set(np.asarray(rows.fold)[count:]) <= {-1}
    assert not np.any(np.asarray(rows.outcome)[count:])
    assert int(rows.site) == 3


def test_padding_never_doubles_a_table() -> None:
    sizes = [padded_size(n) for n in range(16, 3000)]
    assert all(n <= size <= 1.5 * n for n, size in zip(range(16, 3000), sizes, strict=True))
    assert sizes == sorted(sizes)
