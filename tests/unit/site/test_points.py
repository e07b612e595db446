"""Lists of points: powers, inverses, and what is refused."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unpooled.errors import EngineError, MessageError
from unpooled.site import points

PEOPLE = points.hashed(points.digests_of([str(person) for person in range(50)], b"test"))
ONE, OTHER = points.scalar(b"one"), points.scalar(b"other")


def test_powers_commute_and_can_be_undone() -> None:
    both = points.raised(points.raised(PEOPLE, ONE), OTHER)
    np.testing.assert_array_equal(both, points.raised(points.raised(PEOPLE, OTHER), ONE))
    np.testing.assert_array_equal(points.raised(both, points.quotient(OTHER, ONE)), _twice(PEOPLE, OTHER))
    assert len(np.unique(PEOPLE, axis=0)) == 50


def _twice(of: np.ndarray, power: bytes) -> np.ndarray:
    return points.raised(points.raised(of, power), power)


def test_lists_longer_than_a_chunk_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = points.raised(PEOPLE, ONE)
    monkeypatch.setattr(points, "CHUNK", 7)
    np.testing.assert_array_equal(points.raised(PEOPLE, ONE), whole)
    assert points.raised(PEOPLE[:0], ONE).shape == (0, 32)


@pytest.mark.parametrize(
    "bad", [np.zeros(32, np.uint8), np.full(32, 255, np.uint8), np.eye(32, dtype=np.uint8)[0]]
)
@pytest.mark.parametrize("place", [0, 20, 49])
def test_a_value_that_is_no_point_or_the_identity_is_refused(bad: np.ndarray, place: int) -> None:
    several = PEOPLE.copy()
    several[place] = bad
    with pytest.raises(MessageError, match="encodes no point, or the identity"):
        points.raised(several, ONE)


@pytest.mark.parametrize("array", [PEOPLE[:, :31], PEOPLE.astype(np.int64), PEOPLE.ravel()])
def test_an_array_of_another_form_is_refused(array: np.ndarray) -> None:
    with pytest.raises(MessageError, match="another form"):
        points.raised(array, ONE)


def test_zero_has_no_inverse() -> None:
    with pytest.raises(ValueError, match="zero"):
        points.quotient(ONE, bytes(32))


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def missing(name: str, *more: Any, **named: Any) -> Any:
        if name == "rbcl":
            raise ImportError
        return imported(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", missing)
    points._sodium.cache_clear()
    with pytest.raises(EngineError, match=r"unpooled\[dedupe\]"):
        points.scalar(b"")
    points._sodium.cache_clear()


def test_no_copy_of_the_library_is_left_behind() -> None:
    assert not Path(points._sodium()._name).exists()
