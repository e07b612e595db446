"""Subgroups as a study names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from unpooled.data import encode
from unpooled.errors import StudyError
from unpooled.protocol.records import GROUPS
from unpooled.report.folder import study_file
from unpooled.study import ColumnSchema, Schema, Study, read_study, study_template
from unpooled.study.subgroups import RESERVED, about_as_many, levels_named, listed, members

COLUMNS: dict[str, Any] = {
    "treatment": "w",
    "outcome": "y",
    "covariates": ["age", "sex", "smoker", "city"],
    "incomplete": ["bmi"],
}
SCHEMA = Schema(
    covariates=(
        ColumnSchema(name="age", kind="numeric"),
        ColumnSchema(name="sex", kind="categorical", levels=("f", "m")),
        ColumnSchema(name="smoker", kind="binary"),
        ColumnSchema(name="city", kind="categorical", levels=("a", "b", "c")),
    ),
    control="0",
    treated="1",
)
SUBGROUPS = {
    "age": [0, 50, 65.5],
    "city": "levels",
    "smoker": "levels",
    "older women": "age >= 65.5 and sex == 'f'",
}


def study(**subgroups: object) -> Study:
    return Study(**COLUMNS, subgroups=subgroups)


def people(count: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "age": rng.choice([-1.0, 0.0, 49.0, 50.0, 65.0, 65.5, 90.0], count),
            "sex": rng.choice(["f", "m"], count),
            "smoker": rng.integers(0, 2, count),
            "city": rng.choice(["a", "b", "c"], count),
            "w": rng.integers(0, 2, count),
        }
    )


def test_groups_have_names_that_can_be_read() -> None:
    assert [one.name for one in listed(study(**SUBGROUPS).subgroups, SCHEMA)] == [
        "age 0 to 50",
        "age 50 to 65.5",
        "age 65.5 and over",
        "city = a",
        "city = b",
        "city = c",
        "smoker = 0",
        "smoker = 1",
        "older women",
    ]


def test_people_belong_to_the_groups_that_pandas_finds() -> None:
    frame, asked = people(), study(**SUBGROUPS)
    covariates = encode(
        frame, asked.columns.model_copy(update={"incomplete": ()}), SCHEMA, site="a"
    ).covariates
    found = members(listed(asked.subgroups, SCHEMA), SCHEMA, covariates)
    queries = [
        "0 <= age < 50",
        "50 <= age < 65.5",
        "age >= 65.5",
        "city == 'a'",
        "city == 'b'",
        "city == 'c'",
        "smoker == 0",
        "smoker == 1",
        "age >= 65.5 and sex == 'f'",
    ]
    for mine, query in zip(found, queries, strict=True):
        np.testing.assert_array_equal(mine, frame.eval(query))
    assert found[:3].sum() == (frame["age"] >= 0).sum()  # people below the first end belong to none


def test_a_study_without_subgroups_has_none() -> None:
    assert listed(study().subgroups, SCHEMA) == ()
    assert members((), SCHEMA, np.zeros((7, 5))).shape == (0, 7)


@pytest.mark.parametrize(
    ("subgroups", "found", "remedy"),
    [
        ({"agee": [0, 50]}, "unknown column 'agee'", "did you mean 'age'"),
        ({"old": "agge > 3"}, "unknown column 'agge'", "did you mean 'age'"),
        ({"bmi": [20, 30]}, "'bmi', which has missing values", "complete"),
        ({"ill": "y > 3"}, "no covariate", "covariate"),
        ({"treated ones": "w == 1"}, "no covariate", "covariate"),
        ({"age": []}, "no number", "age = [0, 50, 65]"),
        ({"age": [50, 50]}, "do not rise", "age = [0, 50, 65]"),
        ({"age": [0, float("inf")]}, "do not rise", "age = [0, 50, 65]"),
        ({"overlap": "age > 3"}, "'overlap'", "other than"),
        ({" ": "age > 3"}, "' '", "other than"),
        ({"old": "age"}, "without a comparison", "rule"),
    ],
)
def test_groups_that_no_table_has_are_refused_with_the_study(
    subgroups: dict[str, object], found: str, remedy: str
) -> None:
    with pytest.raises(StudyError) as error:
        study(**subgroups)
    assert found in error.value.found
    assert remedy in error.value.remedy


@pytest.mark.parametrize(
    ("subgroups", "text"),
    [
        ({"city": [1, 2]}, 'city = "levels"'),
        ({"age": "levels"}, "age = [0, 50, 65]"),
        ({"sex = f": "age > 3", "sex": "levels"}, "the name 'sex = f' twice"),
        ({"age": list(range(60))}, "60 subgroups"),
        ({"women": "sex == 'w'"}, "'w'"),
    ],
)
def test_groups_that_the_columns_do_not_have_are_refused_when_sites_agree(
    subgroups: dict[str, object], text: str
) -> None:
    with pytest.raises(StudyError) as error:
        listed(study(**subgroups).subgroups, SCHEMA)
    assert text in str(error.value)


def test_subgroups_are_part_of_the_question() -> None:
    plain, asked = study(), study(**SUBGROUPS)
    assert len({plain.hash, asked.hash, study(age=[0, 50, 66]).hash}) == 3
    assert Study(**asked.model_dump(mode="json")).hash == asked.hash


def test_a_study_file_has_subgroups_and_is_written_again(tmp_path: Path) -> None:
    text = study_template().replace("# [subgroups]", "[subgroups]")
    for line in ("age = [", 'sex = "levels"', '"older women"'):
        text = text.replace(f"# {line}", line)
    (tmp_path / "study.toml").write_text(text)
    read = read_study(tmp_path / "study.toml")
    assert read.subgroups == {
        "age": (0.0, 50.0, 65.0),
        "sex": "levels",
        "older women": "age >= 65 and sex == 'f'",
    }
    (tmp_path / "again.toml").write_text(study_file(read, tmp_path))
    assert read_study(tmp_path / "again.toml").subgroups == read.subgroups


def test_levels_that_only_rules_name_are_known() -> None:
    rules = {"x": "city == 'z' or city in ('a', 3) or age > 4", "y": [1, 2], "city": "levels"}
    assert levels_named(rules, "city") == {"z", "a", "3"}  # type: ignore[arg-type]
    assert about_as_many(study(**SUBGROUPS).subgroups) == 3 + 2 + 2 + 1


def test_no_subgroup_can_have_the_name_of_a_group_of_every_study() -> None:
    assert set(GROUPS) < set(RESERVED)
