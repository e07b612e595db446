"""Keys of people: what is written alike, and which rows match no other."""

from __future__ import annotations

from datetime import date, datetime

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unpooled.data.person_keys import normalised, person_keys
from unpooled.errors import DataError, StudyError
from unpooled.study import ColumnRoles, Study


def roles(**more: object) -> ColumnRoles:
    return ColumnRoles(treatment="w", outcome="y", covariates=("x",), **{"id": "number", **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (123, "123"),
        (123.0, 123),
        ("123.0", 123),
        ("943 476-5919", "9434765919"),
        ("Ａｂ１", "AB1"),
        ("Straße", "STRASSE"),
        (date(1980, 2, 1), "1980-02-01"),
        (pd.Timestamp("1980-02-01"), "1980/02/01"),
        (datetime(1980, 2, 1, 13, 30), "1980-02-01T13:30:00"),
        (2**60, str(2**60)),
    ],
)
def test_the_same_person_is_written_alike(left: object, right: object) -> None:
    assert normalised(left) == normalised(right) != ""


def test_leading_zeros_of_text_are_kept() -> None:
    assert normalised("0123") != normalised(123)


@given(st.text())
def test_a_written_value_stays_as_it_is(value: str) -> None:
    once = normalised(value)
    assert normalised(once) == once
    assert normalised(f" {value}") == once or "." in value


@given(st.integers(-(2**52), 2**52))
def test_numbers_are_written_alike_in_all_types(value: int) -> None:
    assert normalised(value) == normalised(float(value)) == str(value)


@pytest.mark.parametrize("column", [[1.5, 2.0], [float(2**53), 1.0], [("a",), "b"]])
def test_values_that_identify_nobody_are_refused_without_showing_them(column: list[object]) -> None:
    with pytest.raises(DataError, match="must identify people at site 'north'") as error:
        person_keys(pd.DataFrame({"number": pd.Series(column)}), roles(), site="north")
    assert "1.5" not in str(error.value) and "9007" not in str(error.value)


def test_rows_without_a_key_or_with_a_wrong_digit_match_nobody() -> None:
    frame = pd.DataFrame({"number": ["9434765919", "943 476 5919", "9434765918", None, " "]})
    found = person_keys(frame, roles(id_check="mod11"), site="north")
    assert found.person.tolist() == [0, 0, -1, -1, -1]
    assert (found.without_key, found.wrong_check, found.repeated) == (2, 1, 1)


def test_parts_of_a_key_do_not_run_together() -> None:
    frame = pd.DataFrame({"a": ["1", "12", "12"], "b": ["23", "3", None]})
    found = person_keys(frame, roles(id=["a", "b"]), site="north")
    assert found.person.tolist() == [0, 1, -1]


@pytest.mark.parametrize("values", [["7", "8"], [7, 8], [7.0, 8.0], pd.array([7, 8], dtype="Int64")])
def test_keys_do_not_depend_on_how_a_column_is_stored(values: object) -> None:
    frame = pd.DataFrame({"number": values})
    assert person_keys(frame, roles(), site="north").keys == ["7", "8"]
    assert person_keys(frame.astype("category"), roles(), site="north").keys == ["7", "8"]


def test_a_study_says_what_it_needs() -> None:
    parts = {"treatment": "w", "outcome": "y", "covariates": ["x"]}
    assert Study(**parts).duplicates == "ignore"
    assert Study(**parts, id="number").duplicates == "leave out"
    assert Study(**parts, id=["a", "b"]).columns.names == ("w", "y", "x", "a", "b")
    assert Study(**parts, id="number", privacy={"duplicates": "ignore"}).duplicates == "ignore"
    with pytest.raises(StudyError, match="needs an `id`"):
        Study(**parts, privacy={"duplicates": "leave out"})
    with pytest.raises(StudyError, match="one column"):
        Study(**parts, id=["a", "b"], id_check="luhn")
    with pytest.raises(StudyError, match="more than once"):
        Study(**parts, id=["a", "x"])
    for nothing in ("", [], [""]):
        with pytest.raises(StudyError, match="name of a column"):
            Study(**parts, id=nothing)
