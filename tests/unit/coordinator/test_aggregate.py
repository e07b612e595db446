"""Replies of all sites into one."""

from __future__ import annotations

import numpy as np
import pytest

from unpooled import errors
from unpooled.coordinator.aggregate import aggregate
from unpooled.protocol.messages import Adopted, Gradient, Refusal, Replies, SiteReplies, Statistics
from unpooled.protocol.table_messages import Summary


def _statistics(value: float) -> Statistics:
    return Statistics({"a": np.full((2, 3), value)}, {"b": np.full((2, 4), value)})


def test_totals_are_summed_and_the_rest_is_stacked_in_the_sites_order() -> None:
    combined = aggregate({"z": _statistics(1.0), "a": _statistics(10.0)})
    assert isinstance(combined, Statistics)
    np.testing.assert_array_equal(combined.summed["a"], np.full((2, 3), 11.0))
    assert combined.per_site["b"].shape == (2, 2, 4)
    np.testing.assert_array_equal(combined.per_site["b"][:, 0], np.full((2, 4), 1.0))
    np.testing.assert_array_equal(combined.per_site["b"][:, 1], np.full((2, 4), 10.0))


def test_gradients_are_summed_with_their_values() -> None:
    combined = aggregate(
        {"a": Gradient({"g": np.ones(2)}, np.array([3.0])), "b": Gradient({"g": np.ones(2)}, np.array([4.0]))}
    )
    assert isinstance(combined, Gradient)
    np.testing.assert_array_equal(combined.gradient["g"], [2.0, 2.0])
    np.testing.assert_array_equal(combined.value, [7.0])


def test_replies_that_came_together_are_combined_one_by_one() -> None:
    combined = aggregate(
        {
            "a": Replies((_statistics(1.0), _statistics(2.0))),
            "b": Replies((_statistics(3.0), _statistics(4.0))),
        }
    )
    assert isinstance(combined, Replies)
    first, second = combined.replies
    assert isinstance(first, Statistics)
    assert isinstance(second, Statistics)
    assert first.summed["a"][0, 0] == 4.0
    assert second.summed["a"][0, 0] == 6.0


def test_other_replies_are_kept_by_site() -> None:
    replies = {"a": Adopted(4), "b": Adopted(5)}
    assert aggregate(replies) == SiteReplies(replies)


@pytest.mark.parametrize("kind", ["LimitRefusal", "DataError", "MessageError", "SchemaError"])
def test_a_refusal_becomes_the_error_it_names_with_the_site(kind: str) -> None:
    refusal = Refusal(kind, "what was expected", "what was found", "what to do")
    with pytest.raises(getattr(errors, kind)) as raised:
        aggregate({"north": _statistics(1.0), "south": refusal})
    assert type(raised.value) is getattr(errors, kind)
    assert "site 'south': what was found" in str(raised.value)


@pytest.mark.parametrize("kind", ["NoSuchError", "nearest", "annotations", "Iterable"])
def test_a_refusal_of_an_unknown_kind_is_still_a_refusal(kind: str) -> None:
    with pytest.raises(errors.LimitRefusal):
        aggregate({"north": Refusal(kind, "a", "b", "c")})


def test_single_precision_is_summed_in_double() -> None:
    large, small = np.full(2, 2.0**24, np.float32), np.ones(2, np.float32)
    found = aggregate(
        {"a": Statistics({"x": large}, {"y": small}), "b": Statistics({"x": small}, {"y": small})}
    )
    assert isinstance(found, Statistics)
    np.testing.assert_array_equal(found.summed["x"], 2.0**24 + 1.0)
    assert found.per_site["y"].dtype == np.float64
    summaries = aggregate({"a": Summary(9, {"sum": large})})
    assert isinstance(summaries, SiteReplies)
    assert summaries.replies["a"].sums["sum"].dtype == np.float64
