"""What a custodian approved, and which questions belong to it."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oracle.records import scaling
from unpooled.errors import ApprovalError, ResultsError
from unpooled.methods.fedci import METHOD
from unpooled.methods.method import with_explicit_settings
from unpooled.protocol.messages import Adopt, Ask, Question, Statistics, Together, Vjp
from unpooled.protocol.records import Parameters
from unpooled.protocol.table_messages import Centre, Describe, MissingPatterns, Summarise
from unpooled.site.approval import Approvals, permit
from unpooled.study import ColumnSchema, Schema, Study

VALUES: dict[str, Any] = {
    "name": "quitting",
    "treatment": "w",
    "outcome": "y",
    "covariates": ["a", "b"],
    "method": {"name": "fedci", "draws": 50},
}
STUDY = with_explicit_settings(Study(**VALUES))
SCHEMA = Schema(
    covariates=(ColumnSchema(name="a", kind="numeric"), ColumnSchema(name="b", kind="binary")),
    control="0",
    treated="1",
)
SETTINGS = METHOD.Settings(draws=50).model_dump(mode="json")
SCALING = scaling()
ADOPT = Adopt(SCHEMA, SCALING, "fedci", SETTINGS, 0, ("north",))


@pytest.fixture
def approvals(tmp_path: Path) -> Approvals:
    return Approvals(tmp_path / "approvals.json")


def test_an_approved_study_is_answered_until_it_is_refused(approvals: Approvals, tmp_path: Path) -> None:
    with pytest.raises(ApprovalError, match="never reviewed") as raised:
        approvals.require(STUDY)
    assert raised.value.exit_code == 8
    approvals.decide(STUDY, approved=True)
    approvals.require(STUDY)
    Approvals(tmp_path / "approvals.json").decide(STUDY, approved=False)
    with pytest.raises(ApprovalError, match="refused on"):
        approvals.require(STUDY)


def test_locations_of_tables_and_explicit_defaults_change_nothing(approvals: Approvals) -> None:
    approvals.decide(STUDY, approved=True)
    approvals.require(Study(**VALUES, sites={"north": "elsewhere.csv"}))
    approvals.require(Study(**{**VALUES, "method": {"name": "fedci", **SETTINGS}}))


CHANGES: dict[str, dict[str, Any]] = {
    "columns.covariates, seed": {"covariates": ["a", "b", "c"], "seed": 3},
    "method.draws": {"method": {"name": "fedci", "draws": 60}},
    "columns.drop_unknown": {"drop_unknown": True},
    "columns.units, columns.units.y": {"units": {"y": "kg"}},
}


@pytest.mark.parametrize("keys", CHANGES)
def test_a_changed_study_needs_a_new_approval_and_its_changes_are_named(
    keys: str, approvals: Approvals
) -> None:
    approvals.decide(STUDY, approved=True)
    changed = Study(**{**VALUES, **CHANGES[keys]})
    with pytest.raises(ApprovalError, match="a changed version of 'quitting'") as raised:
        approvals.require(changed)
    named = raised.value.found.rpartition(": ")[2]
    assert set(named.split(", ")) == set(keys.split(", "))
    approvals.decide(changed, approved=True)
    approvals.require(changed)
    approvals.require(STUDY)


def test_another_name_is_another_study(approvals: Approvals) -> None:
    approvals.decide(STUDY, approved=True)
    with pytest.raises(ApprovalError, match="never reviewed"):
        approvals.require(Study(**{**VALUES, "name": "another"}))


def test_the_file_is_for_the_custodian_and_holds_the_question_only(
    approvals: Approvals, tmp_path: Path
) -> None:
    source = {"url": "postgresql://reader:geheim@db/registry", "query": "select 1"}
    approvals.decide(Study(**VALUES, sites={"north": source}), approved=True)
    path = tmp_path / "approvals.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "geheim" not in path.read_text() and "quitting" in path.read_text()


def test_a_damaged_file_approves_nothing(approvals: Approvals, tmp_path: Path) -> None:
    (tmp_path / "approvals.json").write_text("{")
    with pytest.raises(ResultsError, match="damaged"):
        approvals.require(STUDY)
    with pytest.raises(ResultsError, match="damaged"):
        approvals.decide(STUDY, approved=True)


OWN: dict[str, Question] = {
    "describe": Describe(STUDY.columns),
    "summarise": Summarise(SCHEMA, Centre(np.zeros(3), np.zeros(0))),
    "adopt": ADOPT,
    "ask": Ask("ridge", Parameters()),
    "vjp": Vjp("projection", Parameters(), Statistics()),
}


@pytest.mark.parametrize("what", OWN)
def test_questions_of_the_study_are_permitted(what: str) -> None:
    permit(STUDY, OWN[what])
    if isinstance(OWN[what], Ask | Vjp):
        permit(STUDY, Together((OWN[what], OWN["ask"])))


PLANS = METHOD.plans(METHOD.Settings(draws=50))


@pytest.mark.parametrize("place", range(len(PLANS)))
def test_the_coarser_plans_of_the_method_are_permitted_and_nothing_between(place: int) -> None:
    """The coordinator may ask less than was approved, never more."""
    offered = PLANS[place].model_dump(mode="json")
    permit(STUDY, replace(ADOPT, settings=offered))
    with pytest.raises(ApprovalError, match="other settings to adopt"):
        permit(STUDY, replace(ADOPT, settings={**offered, "draws": 49}))
    if offered != SETTINGS:
        approved = with_explicit_settings(Study(**{**VALUES, "method": {"name": "fedci", **offered}}))
        with pytest.raises(ApprovalError, match="other settings to adopt"):
            permit(approved, ADOPT)


def _with(**changed: Any) -> Schema:
    return SCHEMA.model_copy(update=changed)


OTHERS: dict[str, tuple[Question, str]] = {
    "other columns": (
        Describe(Study(**{**VALUES, "covariates": ["a", "diagnosis"]}).columns),
        "other columns",
    ),
    "sums of fewer": (Summarise(_with(covariates=SCHEMA.covariates[:1])), "other columns"),
    "missing values": (
        MissingPatterns(SCHEMA, np.zeros(4)),
        "missing values in a study without incomplete columns",
    ),
    "another schema": (replace(ADOPT, schema=_with(covariates=())), "other columns"),
    "another method": (replace(ADOPT, method="causal_rff"), "another method"),
    "other settings": (replace(ADOPT, settings={**SETTINGS, "draws": 51}), "other settings"),
    "settings left out": (replace(ADOPT, settings={"draws": 50}), "other settings"),
    "unknown settings": (replace(ADOPT, settings={"darws": 50}), "other settings"),
    "no settings": (replace(ADOPT, settings=3), "other settings"),
    "another seed": (replace(ADOPT, seed=1), "another seed"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_question_of_another_study_is_refused(what: str) -> None:
    question, words = OTHERS[what]
    with pytest.raises(ApprovalError, match=words):
        permit(STUDY, question)


def test_numbers_of_a_site_alone_are_permitted_only_if_the_study_needs_them() -> None:
    method = {"name": "fedci", "inter_dependency": False}
    without = with_explicit_settings(Study(**{**VALUES, "by_site": False, "method": method}))
    for centre in (None, Centre(np.zeros(3), np.zeros(0))):
        question = Summarise(SCHEMA, centre, by_site=True)
        permit(STUDY, question)
        permit(without, replace(question, by_site=False))
        with pytest.raises(ApprovalError, match="that the study does not need"):
            permit(without, question)
    with pytest.raises(ApprovalError, match="effects by site, or none"):
        permit(STUDY, replace(ADOPT, by_site=False))


def test_every_part_of_a_combined_question_must_belong_to_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Vjp, "mismatch", lambda *_: "a gradient of another study")
    permit(STUDY, Together((OWN["ask"], OWN["ask"])))
    with pytest.raises(ApprovalError, match="another study"):
        permit(STUDY, Together((OWN["ask"], OWN["vjp"])))


def test_missing_values_may_be_asked_about_where_columns_are_incomplete() -> None:
    study = Study(**{**VALUES, "incomplete": ["u"], "method": {"name": "causal_fi"}})
    schema = _with(incomplete=(ColumnSchema(name="u", kind="numeric"),))
    permit(study, MissingPatterns(schema, np.zeros(5)))
    with pytest.raises(ApprovalError, match="missing values of other columns"):
        permit(study, MissingPatterns(SCHEMA, np.zeros(5)))
