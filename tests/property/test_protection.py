"""Nobody dominates a sum of a protected column, whatever the column and the groups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from unpooled.disclosure.protection import COMMON, protect

LEASTS = st.sampled_from([1.0, 2.0, 5.0, 10.0])
ROUNDING = 1e-6
"""Of a share of a sum: the clipping limit is found by halving an interval."""


@st.composite
def columns(draw: st.DrawFn) -> np.ndarray:
    """Columns of many kinds: bounded, heavy-tailed, flags, mostly zero, constant; far people and gaps."""
    rows = draw(st.integers(12, 80))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["normal", "cauchy", "flag", "zeros", "counts", "constant", "anything"]))
    column = {
        "normal": lambda: rng.normal(size=rows),
        "cauchy": lambda: rng.standard_cauchy(rows),
        "flag": lambda: (rng.random(rows) < draw(st.sampled_from([0.05, 0.3, 0.9]))).astype(float),
        "zeros": lambda: np.where(rng.random(rows) < 0.8, 0.0, rng.exponential(size=rows)),
        "counts": lambda: rng.poisson(1.5, rows).astype(float),
        "constant": lambda: np.full(rows, 3.25),
        "anything": lambda: draw(arrays.arrays(float, rows, elements=st.floats(-1e6, 1e6, width=32))),
    }[kind]()
    far = draw(st.integers(0, 2))
    column[:far] += draw(st.sampled_from([-1e3, 50.0, 1e6])) * (far > 0)
    if draw(st.booleans()):
        column[rng.random(rows) < 0.2] = np.nan
    return column


def groups_of(rows: int, count: int) -> np.ndarray:
    return np.arange(rows) % count == np.arange(count)[:, None]


def centres(column: np.ndarray) -> list[float]:
    """The median, the mean, and the common values."""
    seen = column[~np.isnan(column)]
    values, counts = np.unique(seen, return_counts=True)
    common = values[counts >= max(COMMON * len(seen), 2)]
    return [float(np.median(seen)), float(seen.mean()), *common.tolist()]


def dominated(column: np.ndarray, groups: np.ndarray, least: float, centre: float) -> bool:
    """Whether one person has more than a `least`-th of a group's squared deviations."""
    squares = np.nan_to_num((column - centre) ** 2)
    negligible = (1e-8 * np.sqrt(squares.max(initial=0.0))) ** 2
    each = [squares[group] for group in groups if squares[group].max(initial=0.0) > negligible]
    return any(one.max() > one.sum() / least * (1.0 + ROUNDING) for one in each)


@given(columns(), LEASTS, st.integers(1, 4))
def test_nobody_dominates_after_protection(column: np.ndarray, least: float, count: int) -> None:
    groups = groups_of(len(column), count)
    found = protect(column[:, None], groups, least)
    after = found.values[:, 0]
    np.testing.assert_array_equal(np.isnan(after), np.isnan(column))
    if found.left_out[0] or np.isnan(column).all():
        return
    assert not [centre for centre in centres(after) if dominated(after, groups, least, centre)]


@given(columns(), LEASTS, st.integers(1, 4))
def test_a_column_is_untouched_if_nobody_dominates(column: np.ndarray, least: float, count: int) -> None:
    groups = groups_of(len(column), count)
    if np.isnan(column).all() or any(
        dominated(column, groups, least * (1.0 + 2.0 * ROUNDING), centre) for centre in centres(column)
    ):
        return
    found = protect(column[:, None], groups, least, extremes=True)
    np.testing.assert_array_equal(found.values[:, 0], column)
    assert not found.left_out[0] and found.clipped[0] == 0


@given(columns(), LEASTS)
def test_clipping_keeps_the_order_within_groups_and_counts_whom_it_changes(
    column: np.ndarray, least: float
) -> None:
    groups = groups_of(len(column), 2)
    found = protect(column[:, None], groups, least)
    seen = ~np.isnan(column)
    before, after = column[seen], found.values[seen, 0]
    assert found.clipped[0] == np.sum(before != after)
    for group in groups[:, seen]:
        order = np.argsort(before[group], kind="stable")
        assert np.all(np.diff(after[group][order]) >= 0.0)
    if len(after):
        assert before.min() <= after.min() and after.max() <= before.max()


def test_columns_are_protected_each_by_itself() -> None:
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.normal(size=60), rng.standard_cauchy(60), np.arange(60) < 3])
    groups = groups_of(60, 2)
    both = protect(values, groups, 5.0)
    for place in range(3):
        alone = protect(values[:, [place]], groups, 5.0)
        np.testing.assert_array_equal(both.values[:, place], alone.values[:, 0])
        assert both.left_out[place] == alone.left_out[0]
    assert both.left_out.tolist() == [False, False, True]


@pytest.mark.parametrize("width", [0, 2])
def test_columns_without_values_and_tables_without_columns_stay_as_they_are(width: int) -> None:
    values = np.full((20, width), np.nan)
    found = protect(values, groups_of(20, 2), 5.0)
    np.testing.assert_array_equal(found.values, values)
    assert not found.left_out.any() and found.left_out.shape == found.clipped.shape == (width,)
