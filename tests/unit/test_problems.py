"""All problems of a study are told at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from unpooled.cli.app import app
from unpooled.data import batches
from unpooled.disclosure.limits import NONE, Limits
from unpooled.engines.in_process import open_sites
from unpooled.errors import DataError, LimitRefusal, MessageError, Problems, SchemaError, StudyError
from unpooled.estimators import AIPW
from unpooled.study import Study, read_study

STUDY = Study(
    treatment="w", outcome="y", covariates=["age", "place"], incomplete=["bmi"], missing="indicator"
)


def table(**changed: Any) -> pd.DataFrame:
    rng, rows = np.random.default_rng(1), 40
    columns = {
        "w": np.arange(rows) % 2,
        "y": rng.normal(size=rows),
        "age": rng.normal(size=rows),
        "place": np.where(np.arange(rows) < 20, "north", "south"),
        "bmi": np.where(np.arange(rows) % 3, rng.normal(size=rows), np.nan),
    }
    return pd.DataFrame({name: value for name, value in {**columns, **changed}.items() if value is not None})


def broken() -> dict[str, Any]:
    """Five problems at three of four sites."""
    return {
        "one": table(y=["bad"] * 40, age=None, bmi=pd.date_range("2020-01-01", periods=40)),
        "two": table(),
        "three": table(place=[None] * 3 + ["north"] * 37),
        "four": "nowhere.csv",
    }


EXPECTED = [
    "site 'one' must have the column 'age'",
    "outcome 'y' must be numeric at site 'one'",
    "column 'bmi' must be numbers or text at site 'one'",
    "column 'place' must have no missing values at site 'three'",
    "site 'four' must have a readable file",
]


def test_the_problems_of_all_columns_of_all_sites_are_told_together() -> None:
    with pytest.raises(DataError) as raised:
        open_sites(STUDY, broken(), NONE)
    assert [one.expected for one in raised.value.problems] == EXPECTED
    for one in raised.value.problems:
        assert f"- {one.expected}; found: {one.found}; try: {one.remedy}" in str(raised.value)
    assert "5 problems" in raised.value.found


def test_a_single_problem_is_told_as_ever() -> None:
    with pytest.raises(DataError) as raised:
        open_sites(STUDY, {**broken(), "one": table(), "three": table()}, NONE)
    assert raised.value.expected == EXPECTED[-1]
    assert raised.value.problems == (raised.value,)


def test_files_tell_what_is_wrong_with_the_columns_that_they_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = table(age=None, place=np.arange(40) + 0.5, y=np.full(40, np.inf))
    wrong.to_csv(tmp_path / "one.csv", index=False)
    wrong.to_parquet(tmp_path / "two.parquet")
    paths = {"one": tmp_path / "one.csv", "two": tmp_path / "two.parquet"}
    with pytest.raises(DataError) as raised:
        open_sites(STUDY, paths, NONE)
    each = ["the column 'age'", "'y' must be finite"]
    for one, part in zip(raised.value.problems, 2 * each, strict=True):
        assert part in one.expected
    # A large file is not read for this.
    monkeypatch.setattr(batches, "LARGE", 10)
    with pytest.raises(DataError) as raised:
        open_sites(STUDY, paths, NONE)
    assert len(raised.value.problems) == 3


def test_sites_that_disagree_in_several_columns_are_told_of_all() -> None:
    asked = Study(treatment="w", outcome="y", covariates=["age", "place"])
    other = table(age=["old", "young"] * 20, place=np.arange(40) + 0.5)
    with pytest.raises(DataError) as raised:
        AIPW().fit(asked, {"one": table(), "two": other})
    kinds = [type(one) for one in raised.value.problems]
    assert kinds == [SchemaError, SchemaError]
    found = [one.expected for one in raised.value.problems]
    assert ["'age'" in found[0], "'place'" in found[1]] == [True, True]


def test_the_refusals_of_all_sites_are_told_together() -> None:
    asked = Study(treatment="w", outcome="y", covariates=["age"])
    with pytest.raises(LimitRefusal) as raised:
        AIPW().fit(asked, {"one": table(), "two": table(y=np.arange(40.0))}, limits=Limits(rows=50))
    assert len(raised.value.problems) == 2
    assert raised.value.exit_code == 4


def test_all_keys_and_values_of_a_study_are_told_together() -> None:
    with pytest.raises(StudyError) as raised:
        Study(treatmnt="w", outcome="", covariates=["x"], seed=-1, family="foo", colour="red")
    found = [(one.found, one.remedy) for one in raised.value.problems]
    assert found[0] == ("unknown key 'treatmnt' in the study", "did you mean 'treatment'?")
    assert found[1][0] == "unknown key 'colour' in the study"
    assert [one.expected for one in raised.value.problems[2:]] == [
        "'seed' must be valid", "'columns.outcome' must be valid", "'columns.family' must be valid",
    ]  # fmt: skip
    assert "the study must give 'treatment'" not in str(raised.value)


def test_a_study_file_tells_of_all_sections(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text('[study]\nsed = 3\n[colums]\nx = 1\n[columns]\ntreatment = "w"\ncovariates = ["x"]\n')
    with pytest.raises(StudyError) as raised:
        read_study(path)
    told = [f"{one.expected} {one.found}" for one in raised.value.problems]
    assert len(told) == 3
    assert ["'colums'" in told[0], "'sed'" in told[1], "'outcome'" in told[2]] == [True] * 3


def test_settings_and_tables_are_checked_together(tmp_path: Path) -> None:
    table(age=None).to_csv(tmp_path / "one.csv", index=False)
    path = tmp_path / "study.toml"
    path.write_text(
        '[columns]\ntreatment = "w"\noutcome = "y"\ncovariates = ["age"]\n'
        '[method]\nname = "aipw"\nfolds = 99\ntrim = 7\n[sites]\none = "one.csv"\ntwo = "two.csv"\n'
    )
    result = CliRunner().invoke(app, ["check", str(path), "--json"])
    assert result.exit_code == 2
    error = json.loads(result.stdout)["error"]
    assert [one["expected"] for one in error["problems"]] == [
        "setting 'folds' must be valid", "setting 'trim' must be valid",
        "site 'one' must have the column 'age'", "site 'two' must have a readable file",
    ]  # fmt: skip
    assert error["exit_code"] == 2


def test_errors_of_other_kinds_end_the_collection_at_once() -> None:
    problems = Problems()
    with pytest.raises(MessageError), problems.collected():
        raise MessageError("a thing", found="another", remedy="a way out")
    problems.raise_all()
