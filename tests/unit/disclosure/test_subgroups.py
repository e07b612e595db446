"""For which subgroups a site answers, against every combination of sums that can be tried."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unpooled.disclosure.subgroups import answerable

CELL = 3


def fewest(groups: np.ndarray) -> int:
    """The fewest people in any combination, with small whole coefficients, of everybody and these groups."""
    sets = np.vstack([np.ones(groups.shape[1], dtype=int), groups.astype(int)])
    sizes = [
        int(np.count_nonzero(np.array(coefficients) @ sets))
        for coefficients in product((-2, -1, 0, 1, 2), repeat=len(sets))
    ]
    return min((size for size in sizes if size), default=0)


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 4), st.integers(4, 24), st.floats(0.1, 0.9), st.integers(0, 10**6))
def test_no_combination_of_what_is_answered_is_of_few_people(
    groups: int, people: int, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    members = rng.random((groups, people)) < share
    part = np.ones((1, people), dtype=bool)
    kept = answerable(members, part, CELL)
    if kept.any():
        assert fewest(members[kept]) >= CELL or not members[kept].any()
    for place in np.flatnonzero(~kept):  # and what is refused would have allowed one
        earlier = kept & (np.arange(groups) < place)
        assert 0 < fewest(np.vstack([members[earlier], members[place]])) < CELL


def test_two_rules_that_differ_in_one_person_are_not_both_answered() -> None:
    old = np.arange(40) < 20
    other = old.copy()
    other[0] = False
    assert answerable(np.array([old, other]), np.ones((1, 40)), 5).tolist() == [True, False]


def test_a_group_that_follows_from_four_rules_is_found() -> None:
    """a + b − (a or b) is a and b; less one person, this is the last rule. No two rules differ by one."""
    a, b = np.arange(60) < 30, (np.arange(60) >= 20) & (np.arange(60) < 50)
    last = a & b
    last[25] = False
    rules = np.array([a, b, a | b, last])
    whole = np.ones((1, 60))
    pairs = [answerable(rules[[i, 3]], whole, 5).all() for i in range(3)]
    assert pairs == [True, True, True]
    assert answerable(rules, whole, 5).tolist() == [True, True, True, False]


@pytest.mark.parametrize("missing", [0, 1])
def test_small_groups_and_small_complements_are_refused(missing: int) -> None:
    group = np.arange(40) < 3
    assert not answerable(np.array([group != bool(missing)]), np.ones((1, 40)), 5)[0]


def test_a_group_must_be_large_in_every_part_that_has_some_of_it() -> None:
    group = np.arange(40) < 20
    arms = np.array([np.arange(40) % 2 == 0, np.arange(40) % 2 == 1])
    assert answerable(group[None], arms, 5)[0]
    few = np.array(
        [(np.arange(40) % 2 == 0) | (np.arange(40) > 4), (np.arange(40) % 2 == 1) & (np.arange(40) < 5)]
    )
    assert not answerable(group[None] & (np.arange(40) != 1), few, 5)[0]


def test_empty_groups_and_groups_of_everybody_reveal_nothing() -> None:
    groups = np.array([np.zeros(30, bool), np.ones(30, bool)])
    assert answerable(groups, np.ones((1, 30)), 5).all()


def test_without_limits_every_group_is_answered() -> None:
    assert answerable(np.eye(4, dtype=bool), np.ones((1, 4)), 0).all()
    assert answerable(np.zeros((0, 4), bool), np.ones((1, 4)), 5).shape == (0,)
