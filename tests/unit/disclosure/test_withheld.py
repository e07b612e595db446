"""Which sites and cells are hidden, so that none can be worked out from totals."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unpooled.disclosure.withheld import CELL, LEAST, complemented, few, withheld

REST = "so that a smaller site cannot be worked out from the totals"


def test_a_small_site_is_hidden_with_the_next_smallest() -> None:
    assert withheld({"a": 413, "b": 164, "c": 22, "d": 3}) == {"d": "fewer than 10 people", "c": REST}
    assert list(withheld({"a": 100, "b": 9, "c": 50})) == ["b", "c"]


def test_small_sites_that_are_many_people_together_hide_nobody_else() -> None:
    assert list(withheld({"a": 100, "b": 6, "c": 7})) == ["b", "c"]
    assert list(withheld({"a": 100, "b": 3, "c": 4})) == ["b", "c", "a"]


def test_sites_of_ten_are_shown() -> None:
    assert withheld({"a": 10, "b": 10}) == {}
    assert withheld({"only": 500}) == {}


def test_an_arm_of_few_hides_a_site_and_so_does_an_arm_that_was_kept_back() -> None:
    counts, arms = {"a": 80, "b": 60, "c": 40}, np.array([[40.0, 40.0], [30.0, 30.0], [37.0, 3.0]])
    expected = {"c": "fewer than 5 people in an arm", "b": REST}
    assert withheld(counts, arms, arms.sum(axis=0)) == expected
    assert withheld(counts, arms * (arms >= CELL), arms.sum(axis=0)) == expected


def test_hidden_sites_that_have_few_of_an_arm_together_hide_another() -> None:
    """8 + 7 people are enough to hide among, but 1 + 2 treated are not."""
    counts = {"a": 90, "b": 60, "c": 8, "d": 7}
    arms = np.array([[45.0, 45.0], [30.0, 30.0], [7.0, 1.0], [5.0, 2.0]])
    assert list(withheld(counts)) == ["c", "d"]
    assert list(withheld(counts, arms, arms.sum(axis=0))) == ["c", "d", "b"]


sizes = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=7)


@given(sizes)
def test_nobody_is_told_apart_by_subtraction(arms: list[tuple[int, int]]) -> None:
    told = np.array(arms, dtype=float)
    counts = {f"s{place}": int(sum(one)) for place, one in enumerate(arms)}
    hidden = withheld(counts, told * ~few(told), told.sum(axis=0))
    gone = np.array([site in hidden for site in counts])
    assert np.all(told[~gone] >= CELL)
    assert np.all(told[~gone].sum(axis=1) >= LEAST)
    if gone.any() and not gone.all():
        assert gone.sum() >= 2
        behind = told[gone].sum(axis=0)
        assert behind.sum() >= LEAST
        assert not few(behind).any()
    if np.all(told >= CELL):
        assert not gone.any()


def test_a_cell_hidden_alone_takes_the_next_smallest_sites_with_it() -> None:
    kept, groups = np.array([[True], [False], [True]]), np.array([[[30.0], [0.0], [20.0]]])
    assert complemented(kept, [60, 50, 40], groups, np.array([[54.0]])).ravel().tolist() == [
        True,
        False,
        False,
    ]


def test_cells_with_few_people_in_all_take_another_with_them() -> None:
    kept, groups = np.array([[True], [False], [False], [True]]), np.array([[[30.0], [0.0], [0.0], [20.0]]])
    few_left, enough = (np.array([[50.0 + extra]]) for extra in (3.0, 7.0))
    assert complemented(kept, [90, 30, 20, 60], groups, few_left).ravel().tolist() == [
        True,
        False,
        False,
        False,
    ]
    assert complemented(kept, [90, 30, 20, 60], groups, enough).ravel().tolist() == [True, False, False, True]


def test_with_nothing_kept_back_all_is_shown() -> None:
    kept, groups = np.ones((3, 2), dtype=bool), np.full((1, 3, 2), 8.0)
    assert complemented(kept, [9, 9, 9], groups, groups.sum(axis=1)).all()


cells = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=6)


@given(cells, st.data())
def test_no_cell_is_told_apart_by_subtraction(people: list[tuple[int, int]], data: st.DataObject) -> None:
    """Two groups of one feature; a site keeps back what few stand behind, and sometimes more."""
    groups = np.array(people, dtype=float).T[:, :, None]
    also = data.draw(st.lists(st.booleans(), min_size=len(people), max_size=len(people)))
    kept = (~few(groups).any(axis=0).ravel() & np.array(also))[:, None]
    told = groups * kept
    shown = complemented(kept, groups.sum(axis=(0, 2)).tolist(), told, groups.sum(axis=1))[:, 0]
    assert np.all(kept[:, 0] | ~shown)
    if not shown.all() and shown.any():
        assert (~shown).sum() >= 2
        assert not few(groups[:, ~shown].sum(axis=1)).any()
    if kept.all():
        assert shown.all()
