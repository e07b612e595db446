"""Rules of subgroups mean what Python and pandas say they mean, and nothing else is accepted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unpooled.errors import StudyError
from unpooled.study import ColumnSchema
from unpooled.study.rules import columns_in, for_columns, holds, parse_rule

PEOPLE = pd.DataFrame(
    {
        "age": [20.0, 49.5, 50.0, 65.0, 80.0, 65.0],
        "smoker": [0.0, 1.0, 1.0, 0.0, 1.0, 1.0],
        "sex": ["f", "m", "f", "m", "f", "f"],
        "body mass": [18.0, 25.0, 30.0, 31.5, 22.0, 30.0],
    }
)
VALUES = {name: PEOPLE[name].to_numpy(dtype=None if name != "sex" else str) for name in PEOPLE}
SCHEMA = (
    ColumnSchema(name="age", kind="numeric"),
    ColumnSchema(name="smoker", kind="binary"),
    ColumnSchema(name="sex", kind="categorical", levels=("f", "m")),
    ColumnSchema(name="body mass", kind="numeric"),
)


def chosen(text: str) -> list[bool]:
    return holds(for_columns(parse_rule(text), SCHEMA, "a group"), VALUES).tolist()


NUMBERS = st.sampled_from([18, 30, 49.5, 50, 65, -3])
NAMED = st.sampled_from(["age", "smoker", "`body mass`"])
ORDERED = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
SIMPLE = st.one_of(
    st.builds("{} {} {}".format, NAMED, ORDERED, NUMBERS),
    st.builds("{} {} {}".format, NUMBERS, ORDERED, NAMED),
    st.builds("{} <= {} < {}".format, NUMBERS, NAMED, NUMBERS),
    st.builds("age {} `body mass`".format, ORDERED),
    st.builds("sex {} '{}'".format, st.sampled_from(["==", "!="]), st.sampled_from("fm")),
    st.builds("{} {} ({}, {})".format, NAMED, st.sampled_from(["in", "not in"]), NUMBERS, NUMBERS),
)
RULES = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.builds("({}) and ({})".format, inner, inner),
        st.builds("({}) or ({})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=6,
)


@given(RULES)
def test_a_rule_holds_for_the_people_for_whom_python_says_so(text: str) -> None:
    plain = text.replace("`body mass`", "mass")
    rows = PEOPLE.rename(columns={"body mass": "mass"}).to_dict("records")
    assert chosen(text) == [bool(eval(plain, {}, dict(row))) for row in rows]


def test_levels_are_the_same_however_they_are_written() -> None:
    levels = (ColumnSchema(name="grade", kind="categorical", levels=("1", "2", "high")),)
    values = {"grade": np.array(["1", "2", "high", "1"])}
    for text in (
        "grade == 1",
        "grade == 1.0",
        "grade == '1'",
        "grade in ('1',)",
        "grade != 2 and grade != 'high'",
    ):
        found = holds(for_columns(parse_rule(text), levels, "a group"), values)
        assert found.tolist() == [True, False, False, True]


def test_quotes_keep_what_is_in_them() -> None:
    assert columns_in(parse_rule("sex == '`age`' or `body mass` > 3")) == ("sex", "body mass")
    assert columns_in(parse_rule("column > 1 and `column` < 3 and `a column0` == 2")) == (
        "column",
        "a column0",
    )


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "age.real > 1",
        "age[0] > 1",
        "(lambda: 1)() == age",
        "age + 1 > 2",
        "age > 1 if smoker else 2",
        "age",
        "not age",
        "age and smoker == 1",
        "[x for x in age] == 1",
        "age == f'{sex}'",
        "(age := 3) > 2",
        "age is 3",
        "age in smoker",
        "age in ()",
        "age in (smoker, 2)",
        "(1, 2) == age",
        "age == (1, 2)",
        "1 < 2",
        "age > 1j",
        "age > 1e999",
        "age > None",
        "age > b'1'",
        "age >",
        "age > 1; sex == 'f'",
        "age > 1\nsex == 'f'",
        "",
        "(" * 400,
        "not " * 240 + "age > 1 or (",
        "age > 1" + " " * 1000,
        "age > '\\d'+'",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(StudyError) as error:
        parse_rule(text)
    assert "comparisons of columns" in error.value.expected
    assert len(error.value.found) < 300


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("age == 'old'", "which is numeric, compared with text"),
        ("age in (50, 'old')", "which is numeric, compared with text"),
        ("sex > 'f'", "which is text, with >"),
        ("sex == age", "which is text, with =="),
        ("sex == 'F'", "'F'"),
        ("sex in ('f', 'x')", "'x'"),
    ],
)
def test_comparisons_that_make_no_sense_for_a_column_are_refused(text: str, found: str) -> None:
    with pytest.raises(StudyError, match="subgroup 'old'") as error:
        for_columns(parse_rule(text), SCHEMA, "old")
    assert found in error.value.found


def test_a_level_that_nobody_has_is_refused_with_the_nearest() -> None:
    columns: Any = (ColumnSchema(name="sex", kind="categorical", levels=("female", "male")),)
    with pytest.raises(StudyError, match="did you mean 'female'"):
        for_columns(parse_rule("sex == 'femal'"), columns, "women")
