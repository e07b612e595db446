"""Batches in chunks, rows with padding."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from unpooled.protocol.batch import CHUNK, one_by_one
from unpooled.protocol.rows import Rows, make_rows, padded_size


def _row(one: dict, offset: float) -> dict:
    return {"sum": one["a"] + one["b"].sum() + offset, "pair": one["b"]}


@pytest.mark.parametrize("size", [1, 2, CHUNK, CHUNK + 1, 3 * CHUNK - 1])
def test_one_by_one_gives_what_a_loop_would_have_given(size: int) -> None:
    batch = {"a": np.arange(size, dtype=float), "b": np.arange(2 * size, dtype=float).reshape(size, 2)}
    found = one_by_one(_row, batch, np.asarray(7.0))
    rows = [_row(jax.tree.map(lambda leaf, i=i: leaf[i], batch), 7.0) for i in range(size)]
    expected = jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_batches_of_every_size_share_one_compilation() -> None:
    traced = []

    def function(one: np.ndarray) -> np.ndarray:
        traced.append(one)
        return one

    one_by_one(function, np.zeros(1))
    after_the_first = len(traced)
    for size in range(2, 3 * CHUNK):
        one_by_one(function, np.zeros(size))
    assert len(traced) == after_the_first


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


def _with_missing(count: int, missing: list[int]) -> Rows:
    values = np.arange(2.0 * count).reshape(count, 2)
    values[missing, 1] = np.nan
    nothing = np.zeros(count)
    return make_rows(values[:, :1], nothing, nothing, fold=nothing, site=0, incomplete=values)


def test_rows_with_gaps_are_those_with_a_missing_value_and_padding_is_absent() -> None:
    some = _with_missing(100, [3, 50, 99]).with_gaps()
    there = np.asarray(some.present) > 0.0
    assert there.sum() == 3
    assert np.asarray(some.covariates)[there, 0].tolist() == [6.0, 100.0, 198.0]
    assert np.all(np.asarray(some.seen)[there] == [1.0, 0.0])


def test_all_rows_may_have_gaps_if_most_do_and_none_is_known_without_incomplete_columns() -> None:
    many = _with_missing(100, list(range(80)))
    assert many.gaps is None
    assert many.with_gaps() is many
    nothing = np.zeros(40)
    assert make_rows(nothing[:, None], nothing, nothing, fold=nothing, site=0).gaps is None
