"""One reply that is not like the others."""

from __future__ import annotations

import numpy as np
import pytest

from unpooled.coordinator.aggregate import aggregate
from unpooled.errors import MessageError, SiteLost
from unpooled.protocol.messages import Statistics


def replies(**odd: np.ndarray) -> dict[str, Statistics]:
    usual = {name: np.ones((2, 3)) for name in ("north", "south", "east")}
    return {name: Statistics({"s": part}, {}) for name, part in {**usual, **odd}.items()}


def test_alike_replies_are_added_up() -> None:
    found = aggregate(replies())
    assert isinstance(found, Statistics)
    np.testing.assert_array_equal(found.summed["s"], np.full((2, 3), 3.0))


@pytest.mark.parametrize("odd", [np.ones((2, 1)), np.ones(3), np.ones((2, 3), bool), np.full((2, 3), np.nan)])
def test_the_one_that_is_not_like_the_others_is_named(odd: np.ndarray) -> None:
    with pytest.raises(SiteLost) as raised:
        aggregate(replies(south=odd))
    assert raised.value.site == "south"


def test_what_is_finite_nowhere_is_no_sites_fault() -> None:
    nothing = np.full((2, 3), np.inf)
    found = aggregate(replies(north=nothing, south=nothing, east=nothing))
    assert isinstance(found, Statistics)
    assert np.all(np.isinf(found.summed["s"]))


def test_of_two_shapes_neither_is_the_right_one() -> None:
    two = replies(south=np.ones(7))
    del two["east"]
    with pytest.raises(MessageError, match="north, south"):
        aggregate(two)
