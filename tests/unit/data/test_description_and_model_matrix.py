"""From a site's table to a description, an agreed schema, and arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unpooled.data import describe, encode, encode_covariates
from unpooled.errors import DataError
from unpooled.study import ColumnRoles, ColumnSchema, Schema, agree

COLUMNS = ColumnRoles(treatment="w", outcome="y", covariates=("age", "sex", "ill", "city"), id="key")
FRAME = pd.DataFrame(
    {
        "w": [0, 1, 1, 0],
        "y": [1.5, 0.25, 2.0, 3.0],
        "age": [50, 61, 44, 39],
        "sex": [True, False, False, True],
        "ill": [0.0, 1.0, 1.0, 0.0],
        "city": ["ulm", "bonn", "ulm", "hof"],
        "key": [11, 12, 13, 14],
    }
)
SCHEMA = Schema(
    covariates=(
        ColumnSchema(name="age", kind="numeric"),
        ColumnSchema(name="sex", kind="binary"),
        ColumnSchema(name="ill", kind="binary"),
        ColumnSchema(name="city", kind="categorical", levels=("bonn", "hof", "köln", "ulm")),
    ),
    control="0",
    treated="1",
)


def kinds(frame: pd.DataFrame) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {column.name: (column.kind, column.levels) for column in describe(frame, COLUMNS).columns}


def refusal(frame: pd.DataFrame) -> str:
    with pytest.raises(DataError) as caught:
        encode(frame, COLUMNS, SCHEMA, site="north")
    assert "'north'" in str(caught.value)
    return str(caught.value)


def test_a_table_is_described_by_counts_kinds_and_levels() -> None:
    description = describe(FRAME, COLUMNS)
    assert (description.rows, description.arms) == (4, {"0": 2, "1": 2})
    assert kinds(FRAME) == {
        "age": ("numeric", ()),
        "sex": ("binary", ()),
        "ill": ("binary", ()),
        "city": ("categorical", ("bonn", "hof", "ulm")),
    }


def test_one_and_two_are_numbers_and_text_digits_are_levels() -> None:
    described = kinds(FRAME.assign(sex=[1, 2, 2, 1], ill=["1", "0", "1", "0"]))
    assert described["sex"] == ("numeric", ()) and described["ill"] == ("categorical", ("0", "1"))


def test_numeric_categories_are_spelt_in_one_way_and_unused_ones_are_left_out() -> None:
    stored = pd.Categorical([1.0, 2.0, 1.0, 2.0], categories=[1.0, 2.0, 3.0])
    assert kinds(FRAME.assign(age=stored))["age"] == ("categorical", ("1", "2"))


@pytest.mark.parametrize(
    "stored", [[0, 1, 1, 0], [0.0, 1.0, 1.0, 0.0], [False, True, True, False], ["0", "1", "1", "0"]]
)
@pytest.mark.parametrize("dtype", [None, "category", object])
def test_the_arms_are_the_same_however_the_treatment_is_stored(stored: list[Any], dtype: Any) -> None:
    frame = FRAME.assign(w=pd.Series(stored, dtype=dtype))
    assert describe(frame, COLUMNS).arms == {"0": 2, "1": 2}
    assert encode(frame, COLUMNS, SCHEMA, site="north").treatment.tolist() == [0.0, 1.0, 1.0, 0.0]


def test_arrays_follow_the_order_of_the_schemas_features() -> None:
    arrays = encode(FRAME, COLUMNS, SCHEMA, site="north")
    assert SCHEMA.features == ("age", "sex", "ill", "city=hof", "city=köln", "city=ulm")
    np.testing.assert_array_equal(
        arrays.covariates,
        [[50, 1, 0, 0, 0, 1], [61, 0, 1, 0, 0, 0], [44, 0, 1, 0, 0, 1], [39, 1, 0, 1, 0, 0]],
    )
    assert arrays.outcome is not None and arrays.outcome.tolist() == [1.5, 0.25, 2.0, 3.0]
    assert {arrays.covariates.dtype, arrays.treatment.dtype, arrays.outcome.dtype} == {np.dtype("float64")}


def test_a_named_treated_level_becomes_one() -> None:
    columns = COLUMNS.model_copy(update={"treated": "drug"})
    frame = FRAME.assign(w=["drug", "zero", "zero", "drug"])
    schema = agree({"north": describe(frame, columns)}, columns)
    assert encode(frame, columns, schema, site="north").treatment.tolist() == [1.0, 0.0, 0.0, 1.0]


def test_the_outcome_and_the_ids_may_be_absent() -> None:
    arrays = encode(FRAME.drop(columns=["y", "key"]), COLUMNS, SCHEMA, site="north")
    assert arrays.outcome is None


def test_new_people_need_only_covariates_and_may_be_few() -> None:
    people = FRAME.filter(["city", "ill", "sex", "age"]).head(3)
    full = encode(FRAME, COLUMNS, SCHEMA, site="north").covariates
    np.testing.assert_array_equal(encode_covariates(people, COLUMNS, SCHEMA, site="north"), full[:3])


def test_an_unseen_level_is_counted_and_not_shown() -> None:
    message = refusal(FRAME.assign(city=["ulm", "atlantis", "atlantis", "hof"]))
    assert "2 of 4 rows" in message and "'city'" in message and "atlantis" not in message


@pytest.mark.parametrize("column", ["w", "y", "age", "city"])
def test_missing_values_are_refused(column: str) -> None:
    assert "1 missing of 4" in refusal(FRAME.assign(**{column: [None, *FRAME[column].iloc[1:]]}))


@pytest.mark.parametrize("column", ["w", "age", "city"])
def test_a_missing_column_is_refused(column: str) -> None:
    assert f"column '{column}'" in refusal(FRAME.drop(columns=column))


def test_text_where_the_sites_agreed_on_numbers_is_refused() -> None:
    assert "must be numeric" in refusal(FRAME.assign(age=["a", "b", "a", "b"]))


def test_infinite_values_and_dates_are_refused() -> None:
    assert "infinite" in refusal(FRAME.assign(age=[np.inf, 1, 2, 3]))
    assert "numbers or text" in refusal(FRAME.assign(city=pd.date_range("2020-01-01", periods=4)))


def test_a_treatment_level_outside_the_agreed_two_is_refused() -> None:
    assert "2 of 4 rows" in refusal(FRAME.assign(w=[0, 7, 7, 0]))


@given(st.data())
def test_sites_that_agree_encode_as_their_stacked_table_does(data: st.DataObject) -> None:
    rows = st.fixed_dictionaries(
        {
            "w": st.integers(0, 1),
            "y": st.floats(-9, 9),
            "age": st.floats(0, 99) | st.integers(0, 1),
            "sex": st.booleans(),
            "ill": st.integers(0, 1),
            "city": st.sampled_from(["ulm", "bonn", "hof", "köln"]),
            "key": st.integers(0, 9),
        }
    )
    both_arms = [{**data.draw(rows), "w": arm} for arm in (0, 1, 0, 1)]
    frames = {
        "north": pd.DataFrame(both_arms[:2] + data.draw(st.lists(rows, max_size=5))),
        "south": pd.DataFrame(both_arms[2:] + data.draw(st.lists(rows, max_size=5))),
    }
    stacked = pd.concat(frames.values(), ignore_index=True)
    schema = agree({site: describe(frame, COLUMNS) for site, frame in frames.items()}, COLUMNS)
    assert schema == agree({"all": describe(stacked, COLUMNS)}, COLUMNS)
    parts = [encode(frame, COLUMNS, schema, site=site).covariates for site, frame in frames.items()]
    np.testing.assert_array_equal(
        np.concatenate(parts), encode(stacked, COLUMNS, schema, site="all").covariates
    )
