"""A table the study cannot use is refused before anything is sent, without showing a value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from unpooled.data import check
from unpooled.errors import DataError
from unpooled.study import ColumnRoles

COLUMNS = ColumnRoles(
    treatment="w", outcome="y", covariates=("age", "sex"), incomplete=("smoking",), id="key"
)
ROWS = 120


def table(**replaced: Any) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "w": np.arange(ROWS) % 2,
            "y": np.linspace(-1.0, 3.0, ROWS),
            "age": np.linspace(20.0, 80.0, ROWS),
            "sex": ["f", "m", "m"] * (ROWS // 3),
            "smoking": [None, "never", "daily"] * (ROWS // 3),
            "key": [f"p{row}" for row in range(ROWS)],
        }
    )
    return frame.assign(**replaced)


def first(value: Any, of: str) -> pd.Series:
    """The column with its first value replaced."""
    return pd.Series([value, *table()[of].iloc[1:]], dtype=object)


def refusal(frame: pd.DataFrame, columns: ColumnRoles = COLUMNS) -> str:
    with pytest.raises(DataError) as caught:
        check(frame, columns, site="north")
    assert "'north'" in caught.value.expected
    return str(caught.value)


def test_a_good_table_passes() -> None:
    check(table(), COLUMNS, site="north")


def test_every_usual_way_to_store_numbers_and_text_passes() -> None:
    frame = table()
    check(frame.convert_dtypes(), COLUMNS, site="north")
    check(frame.astype({"sex": "category", "w": bool, "age": object}), COLUMNS, site="north")
    check(frame.assign(w=np.where(frame["w"] == 1, "drug", "none")), COLUMNS, site="north")


@pytest.mark.parametrize("rows", [0, 1])
def test_fewer_than_two_rows_are_refused(rows: int) -> None:
    assert "two rows" in refusal(table().head(rows))


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NA, pd.NaT])
@pytest.mark.parametrize(
    ("column", "remedy"), [("w", "drop"), ("y", "drop"), ("age", "causal_fi"), ("sex", "causal_fi")]
)
def test_missing_values_are_counted_and_a_remedy_is_named(column: str, remedy: str, nothing: Any) -> None:
    message = refusal(table(**{column: first(nothing, column)}))
    assert f"'{column}'" in message and f"1 missing of {ROWS}" in message and remedy in message


def test_an_incomplete_column_may_have_missing_values_but_not_infinite_ones() -> None:
    check(table(smoking=[None, 1.5] * (ROWS // 2)), COLUMNS, site="north")
    check(table(smoking=None), COLUMNS, site="north")
    assert "infinite" in refusal(table(smoking=[None, np.inf] * (ROWS // 2)))


@pytest.mark.parametrize("column", ["y", "age"])
@pytest.mark.parametrize(
    ("value", "word"), [(np.inf, "infinite"), (-np.inf, "infinite"), (-3e12, "change the unit")]
)
def test_infinite_and_huge_values_are_refused(column: str, value: float, word: str) -> None:
    message = refusal(table(**{column: first(value, column)}))
    assert f"'{column}'" in message and word in message


def test_a_treatment_with_three_levels_is_refused() -> None:
    assert "3 levels" in refusal(table(w=np.arange(ROWS) % 3))


def test_a_treatment_with_one_level_is_left_to_the_agreement_of_the_sites() -> None:
    check(table(w=1), COLUMNS, site="north")


def test_an_outcome_in_words_is_refused() -> None:
    assert "outcome 'y' must be numeric" in refusal(table(y=["good", "bad"] * (ROWS // 2)))


@pytest.mark.parametrize(("family", "bad"), [("binary", 2), ("binary", 0.5), ("count", -1), ("count", 1.5)])
def test_the_outcome_must_fit_its_family(family: str, bad: float) -> None:
    columns = COLUMNS.model_copy(update={"family": family})
    frame = table(y=np.arange(ROWS) % 2)
    check(frame, columns, site="north")
    message = refusal(frame.assign(y=np.where(np.arange(ROWS) < 3, bad, frame["y"])), columns)
    assert f"{family} outcome" in message and f"3 other values of {ROWS}" in message


@pytest.mark.parametrize(
    "values",
    [
        pd.date_range("2020-01-01", periods=ROWS),
        pd.timedelta_range("1 day", periods=ROWS),
        [1, "one"] * (ROWS // 2),
        [{"a": 1}] * ROWS,
        [1 + 2j] * ROWS,
        [b"one"] * ROWS,
        pd.date_range("2020-01-01", periods=ROWS).date,
    ],
    ids=["dates", "durations", "mixed", "objects", "complex", "bytes", "plain dates"],
)
@pytest.mark.parametrize("column", ["w", "y", "age", "smoking"])
def test_other_kinds_of_values_are_refused(values: Any, column: str) -> None:
    message = refusal(table(**{column: values}))
    assert f"'{column}'" in message and "numbers or text" in message


def test_numbers_stored_as_text_are_text() -> None:
    check(table(age=["1", "2"] * (ROWS // 2)), COLUMNS, site="north")
    assert "identifier" in refusal(table(age=[str(row) for row in range(ROWS)]))


def test_too_many_levels_look_like_an_identifier() -> None:
    check(table(sex=[f"s{row % 50}" for row in range(ROWS)]), COLUMNS, site="north")
    assert "identifier" in refusal(table(sex=[f"s{row % 51}" for row in range(ROWS)]))
    assert "identifier" in refusal(table(sex=[f"s{row % 21}" for row in range(ROWS)]).head(40))
    assert "identifier" in refusal(table(smoking=table()["key"]))


def test_two_levels_at_a_tiny_site_are_no_identifier() -> None:
    check(table().head(3), COLUMNS, site="north")


def test_a_missing_column_is_refused() -> None:
    assert "'sex'" in refusal(table().drop(columns="sex"))


def test_no_refusal_shows_a_value() -> None:
    secret = 12345.678
    bad = [
        table(w=first("12345.678", "w")),
        table(age=first("12345.678", "age")),
        table(y=first("12345.678", "y")),
    ]
    bad.append(table(age=first(secret * 1e12, "age")))
    for frame in bad:
        assert "12345" not in refusal(frame) and "e+16" not in refusal(frame)


def test_infinite_values_in_the_treatment_are_counted() -> None:
    assert f"infinite: 1 of {ROWS} values" in refusal(table(w=first(np.inf, "w").astype(float)))


def test_a_code_for_missing_values_among_numbers_is_recognised() -> None:
    message = refusal(table(age=[".", *map(str, range(1, ROWS))]))
    assert f"{ROWS - 1} of them numbers" in message and "leave missing values empty" in message
    assert "identifier" not in message
    assert "missing values" in refusal(table(y=[".", *map(str, range(1, ROWS))]))
    assert "missing values" in refusal(table(w=[".", *["0", "1", "1"] * 39, "0", "1"]))
