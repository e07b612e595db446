"""The question, the roles of its columns, and where the tables are."""

from __future__ import annotations

from typing import Any

import pytest

from unpooled.errors import StudyError
from unpooled.study import ColumnRoles, Source, Study

ROLES: dict[str, Any] = {"treatment": "w", "outcome": "y", "covariates": ["age", "sex"]}


def refusal(**values: Any) -> str:
    with pytest.raises(StudyError) as caught:
        Study(**values)
    return str(caught.value)


def test_roles_may_be_given_flat_or_under_columns() -> None:
    assert Study(**ROLES) == Study(columns=ROLES) == Study(columns=ColumnRoles(**ROLES))


def test_names_list_treatment_and_outcome_first() -> None:
    columns = ColumnRoles(**ROLES, incomplete=("smoking",), id="key")
    assert columns.names == ("w", "y", "age", "sex", "smoking", "key")


def test_one_covariate_needs_no_list() -> None:
    assert Study(treatment="w", outcome="y", covariates="age").columns.covariates == ("age",)


def test_a_column_has_one_role() -> None:
    assert "named more than once: age" in refusal(**ROLES, incomplete=["age"])


def test_units_belong_to_columns_of_the_study() -> None:
    assert Study(**ROLES, units={"y": "kg"}).columns.outcome_unit == "kg"
    assert "no role: z" in refusal(**ROLES, units={"z": "kg"})


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"tretment": "w"}, "did you mean 'treatment'?"),
        ({"sites": {"north": {"pth": "a.csv"}}}, "did you mean 'path'?"),
        ({"columns": {"familly": "binary"}}, "did you mean 'family'?"),
        ({"family": "gaussian"}, "family"),
        ({"seed": -1}, "seed"),
        ({"covariates": []}, "covariates"),
        ({"sites": {"north": {}}}, "either `path`"),
        ({"sites": {"all sites": "a.csv"}}, "a site called 'all sites'"),
        ({"sites": {"": "a.csv"}}, "a site without a name"),
        ({"sites": {"  ": "a.csv"}}, "a site without a name"),
        ({"sites": {"north": {"path": "a.csv", "url": "sqlite://"}}}, "either `path`"),
        ({"sites": {"north": {"url": "sqlite://"}}}, "needs a `query`"),
        ({"sites": {"north": {"path": "a.csv", "query": "select 1"}}}, "not with a file"),
    ],
)
def test_a_mistake_is_told_with_a_remedy(wrong: dict[str, Any], hint: str) -> None:
    assert hint in refusal(**{**ROLES, **wrong})


def test_a_missing_role_is_named() -> None:
    assert "'outcome'" in refusal(treatment="w", covariates=["age"])


def test_the_hash_follows_the_question_only() -> None:
    study = Study(**ROLES)
    assert study.hash == Study(**ROLES, sites={"north": "north.csv"}).hash
    assert study.hash != Study(**ROLES, seed=1).hash
    assert study.hash != Study(**ROLES, method={"name": "fedci", "draws": 5}).hash


def test_a_bare_string_is_a_path() -> None:
    assert Study(**ROLES, sites={"north": "north.csv"}).sites["north"] == Source(path="north.csv")
