"""Numbers of single sites are withheld by their type, whatever a diagnostic is called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unpooled.disclosure.by_site import BySite, Trace, withhold
from unpooled.methods.method import Fit
from unpooled.protocol.records import Draws

SITES = ("north", "south", "east")
VALUES = np.array([0.5, -1.25, 3.0])
PAIRS = np.arange(1.0, 10.0).reshape(3, 3)


def _withheld(value: Any, *hidden: str) -> Any:
    """One diagnostic that nobody has heard of."""
    return withhold({"unheard of": value}, SITES, hidden)["unheard of"]


def test_a_number_of_each_site_is_withheld_for_hidden_sites() -> None:
    np.testing.assert_equal(_withheld(BySite(VALUES), "south"), [0.5, np.nan, 3.0])
    np.testing.assert_equal(_withheld(BySite(VALUES), "south", "east"), [0.5, np.nan, np.nan])
    assert _withheld(BySite(VALUES)) == VALUES.tolist()


def test_all_numbers_of_a_hidden_site_are_withheld_and_no_other_sites() -> None:
    found = np.array(_withheld(BySite(PAIRS), "south"))
    assert np.all(np.isnan(found[1]))
    np.testing.assert_array_equal(found[[0, 2]], PAIRS[[0, 2]])


def test_numbers_of_pairs_are_withheld_if_either_site_is_hidden() -> None:
    found = np.array(_withheld(BySite(PAIRS, axes=2), "south"))
    gone = np.array([[False, True, False], [True, True, True], [False, True, False]])
    np.testing.assert_array_equal(np.isnan(found), gone)
    np.testing.assert_array_equal(found[~gone], PAIRS[~gone])


def test_an_array_for_each_pair_is_withheld_whole() -> None:
    values = np.arange(18.0).reshape(3, 3, 2)
    found = np.array(_withheld(BySite(values, axes=2), "north"))
    assert np.all(np.isnan(found[0]))
    assert np.all(np.isnan(found[:, 0]))
    np.testing.assert_array_equal(found[1:, 1:], values[1:, 1:])


def test_whole_numbers_are_withheld_too() -> None:
    np.testing.assert_equal(_withheld(BySite(np.array([4, 7, 9])), "east"), [4.0, 7.0, np.nan])


def test_numbers_of_sites_are_found_however_deep_they_are_nested() -> None:
    deep = {"a": {"b": BySite(VALUES), "c": {"d": BySite(PAIRS, axes=2), "e": "text"}}, "f": 3}
    found = _withheld(deep, "north")
    np.testing.assert_equal(found["a"]["b"], [np.nan, -1.25, 3.0])
    pairs = np.array(found["a"]["c"]["d"])
    assert np.isnan(pairs).sum() == 5
    np.testing.assert_array_equal(pairs[1:, 1:], PAIRS[1:, 1:])
    assert (found["a"]["c"]["e"], found["f"]) == ("text", 3)


def test_what_is_about_no_single_site_is_left_as_it_is() -> None:
    plain = {"rounds": 4, "converged": True, "objective": -2.5, "chosen": "line", "missing": None}
    assert withhold(plain, SITES, SITES) == plain
    assert _withheld(Trace((3.0, 2.0, 1.0)), *SITES) == [3.0, 2.0, 1.0]


def test_withholding_does_not_change_what_the_fit_holds() -> None:
    held = BySite(VALUES.copy())
    _withheld(held, *SITES)
    np.testing.assert_array_equal(held.values, VALUES)


# ------------------------------------------------------------------------------------- a fit


def _fit(diagnostics: dict[str, Any]) -> Fit:
    return Fit(Draws(), np.zeros((20, 3)), diagnostics)


@pytest.mark.parametrize(
    "bare",
    [[1.0, 2.0, 3.0], (1.0, 2.0, 3.0), VALUES, PAIRS, [], {1.0, 2.0}],
    ids=["list", "tuple", "array", "matrix", "empty list", "set"],
)
def test_a_bare_list_or_array_in_the_diagnostics_of_a_fit_is_refused_by_name(bare: Any) -> None:
    with pytest.raises(TypeError, match="'unheard of'"):
        _fit({"unheard of": bare})
    with pytest.raises(TypeError, match="'unheard of'"):
        _fit({"a": {"b": {"unheard of": bare}}})


def test_typed_diagnostics_of_a_fit_are_taken() -> None:
    diagnostics = {
        "shares": BySite(PAIRS, axes=2),
        "deep": {"history": Trace((2.0, 1.0)), "estimate": BySite(VALUES)},
        "rounds": 3,
        "objective": np.float64(1.5),
        "chosen": "line",
        "missing": None,
    }
    assert _fit(diagnostics).diagnostics is diagnostics
