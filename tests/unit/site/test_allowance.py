"""What a coordinator may ask under one approval, and what it is bound to."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from engines.stage import approve_together, study, tables, written
from unpooled.coordinator.run import run_study
from unpooled.disclosure.limits import Limits
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import LimitRefusal, ResultsError
from unpooled.methods.aipw.fit import STEPS
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.envelope import Asked, open_reply
from unpooled.protocol.messages import (
    Adopt,
    Adopted,
    Ask,
    Message,
    Question,
    Refusal,
    Statistics,
    Together,
    Vjp,
)
from unpooled.protocol.records import Parameters
from unpooled.protocol.table_messages import Centre, Describe, Summarise, Summary
from unpooled.site.allowance import (
    BEFORE_FITTING,
    Allowances,
    Spent,
    budget_of,
    spend,
    stage_budget,
    theta_of,
)
from unpooled.site.answer import answer
from unpooled.site.folder import SiteFolder
from unpooled.site.gateway import CONSTANT, Gateway
from unpooled.site.site import open_site
from unpooled.study import Study

METHOD = {"name": "aipw", "draws": 40, "folds": 1}
STUDY = study(method=METHOD)
RESTARTING = study(method=METHOD, min_sites=2)
"""It may start again without a lost site."""
REFUSED = Refusal("LimitRefusal", *CONSTANT["LimitRefusal"])


class Listening(InProcess):
    """An engine that keeps the questions to the first site."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.heard: list[Question] = []

    def exchange(self, question: Question) -> Any:
        self.heard.append(question.to_site(0))
        return super().exchange(question)


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    """Everything that an honest run asks of the site north."""
    engine = Listening(open_sites(STUDY, tables(), Limits()))
    run_study(STUDY, engine)
    return engine.heard


@pytest.fixture
def own(tmp_path: Path) -> SiteFolder:
    """A site that has approved both studies."""
    found = SiteFolder.create(tmp_path / "north", "north", written(tmp_path, tables())["north"])
    for one in (STUDY, RESTARTING):
        approve(found, one)
    return found


def approve(own: SiteFolder, asked: Study = STUDY) -> None:
    approve_together([own.folder], asked)


def ask(gateway: Gateway, question: Question, asked: Study = STUDY, number: int = 1) -> Message:
    sealed = Asked(asked.model_dump_json(exclude={"sites"}), b"once", number, encode(question)).seal()
    return decode(open_reply(gateway.answer(sealed), sealed, "north").reply)


def ask_all(gateway: Gateway, questions: list[Question], asked: Study = STUDY) -> list[Message]:
    return [ask(gateway, question, asked, number) for number, question in enumerate(questions, start=1)]


def state(own: SiteFolder, asked: Study = STUDY) -> Spent:
    return Allowances(own.allowances, 5).read(asked.hash)


def at(number: float) -> Ask:
    """A question that differs from others by a number."""
    own = {"treatment": np.full((1, 4), number)}
    return Ask("treatment", Parameters(fixed={"without": np.array([-1])}, per_site=own))


def reason(own: SiteFolder) -> str:
    """The last line of the custodian's log."""
    return own.refusals.read_text().splitlines()[-1]


# ------------------------------------------------------------------------------ an honest run


def test_an_honest_run_is_answered_and_what_it_asked_is_on_file(
    own: SiteFolder, questions: list[Question]
) -> None:
    replies = ask_all(Gateway(own.folder), questions)
    assert not any(isinstance(reply, Refusal) for reply in replies)
    spent = state(own)
    assert spent.rounds == len(questions) == len(spent.answered) <= budget_of(STUDY, 1).rounds
    assert spent.bytes == sum(len(encode(reply)) for reply in replies)
    assert spent.kinds["summarise"] == 2 and spent.kinds["adopt"] == 1
    assert spent.sites == ("north", "south", "east")
    assert spent.theta["scores"] == 1 and 1 < spent.theta["treatment"] <= STEPS


def test_an_honest_run_that_is_repeated_costs_nothing(own: SiteFolder, questions: list[Question]) -> None:
    first = ask_all(Gateway(own.folder), questions)
    before = state(own)
    for gateway in (Gateway(own.folder), Gateway(own.folder)):  # as after restarts
        assert [encode(reply) for reply in ask_all(gateway, questions)] == [encode(one) for one in first]
    assert state(own).model_copy(update={"bytes": before.bytes}) == before


def test_the_state_is_for_the_custodian(own: SiteFolder, questions: list[Question]) -> None:
    ask(Gateway(own.folder), questions[0])
    files = list(own.allowances.iterdir())
    assert sorted(file.suffix for file in files) == [".json", ".people"]
    assert stat.S_IMODE(own.allowances.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)


# ----------------------------------------------------------------------------------- budgets


def test_the_budget_is_what_the_study_needs_and_twice_that_if_it_may_start_again() -> None:
    once, twice = budget_of(STUDY, 7), budget_of(RESTARTING, 7)
    assert (once.rounds, once.runs, once.bytes) == (BEFORE_FITTING + 1 + STEPS, 1, 7)
    assert (twice.rounds, twice.runs) == (2 * once.rounds, 2)
    with_diagnostics = budget_of(
        study(method={"name": "aipw", "estimator": "difference"}, diagnostics=True), 7
    )
    assert with_diagnostics.rounds == BEFORE_FITTING + diagnostic_rounds.MOST_ROUNDS
    incomplete = study(method={"name": "causal_fi", "draws": 40})
    changed = incomplete.with_changes(columns=incomplete.columns.model_copy(update={"incomplete": ("u",)}))
    assert budget_of(changed, 7).rounds == budget_of(incomplete, 7).rounds + 1


def test_more_rounds_than_the_budget_are_refused_and_the_count_survives_a_restart(
    own: SiteFolder, questions: list[Question]
) -> None:
    ask_all(Gateway(own.folder), questions[:4])
    most = budget_of(STUDY, 1).rounds - 4
    replies = [ask(Gateway(own.folder), at(0.001 * number)) for number in range(most)]
    assert isinstance(replies[0], Refusal)  # asked of a gateway that has not adopted the study again
    assert state(own).rounds == most + 4
    gateway = Gateway(own.folder)
    assert isinstance(ask(gateway, questions[3]), Adopted)
    assert ask(gateway, at(0.5)) == REFUSED
    assert f"more than {most + 4} rounds" in reason(own)
    assert state(own).rounds == most + 4


def test_a_stage_is_asked_for_no_more_parameters_than_a_fit_needs(
    own: SiteFolder, questions: list[Question]
) -> None:
    gateway = Gateway(own.folder)
    ask_all(gateway, questions[:4])
    many = np.linspace(-0.1, 0.1, STEPS)
    batch = Parameters(
        {}, {"without": np.full(STEPS, -1)}, {"treatment": np.repeat(many[:, None], 4, axis=1)}
    )
    assert isinstance(ask(gateway, Ask("treatment", batch)), Statistics)
    assert state(own).theta == {"treatment": STEPS}
    assert ask(gateway, at(0.2)) == REFUSED
    assert "too many θ for stage 'treatment'" in reason(own)
    together = Together((at(0.2), at(0.3)))
    assert ask(gateway, together) == REFUSED
    assert state(own).theta == {"treatment": STEPS}


def test_theta_is_counted_by_stage_and_gradients_apart() -> None:
    three, two = (Parameters({"a": np.zeros((count, 4))}) for count in (3, 2))
    asked = Together((Ask("p", three), Ask("p", two), Vjp("p", two, Statistics()), Ask("q", Parameters())))
    assert theta_of(asked) == {"p": 5, "p: gradient": 2, "q": 1}
    assert theta_of(Describe(STUDY.columns)) == {}


def test_stages_that_the_method_does_not_have_have_no_budget(questions: list[Question]) -> None:
    site = open_site("north", tables()["north"], STUDY, Limits())
    assert isinstance(answer(site, questions[3]), Adopted)
    assert site.adopted is not None
    allowed = stage_budget(site.adopted)
    assert allowed["scores"] == 1 and allowed["treatment"] == STEPS
    with pytest.raises(LimitRefusal, match="'others'"):
        other = Ask("others", Parameters({"a": np.zeros((1, 2))}))
        spend(Spent(approval="", salt="", table=""), budget_of(STUDY, 1), other, "", site.adopted)


def test_sums_about_centres_of_the_coordinators_choice_are_few(
    own: SiteFolder, questions: list[Question]
) -> None:
    gateway = Gateway(own.folder)
    first = questions[1]
    assert isinstance(first, Summarise)

    def about(value: float) -> Summarise:
        return replace(first, centre=Centre(np.full(4, value), np.zeros(0)), by_site=False)

    replies = [ask(gateway, question) for question in (first, about(0.0), about(0.1), first, about(0.0))]
    assert [type(reply) for reply in replies] == [Summary, Summary, Refusal, Summary, Summary]
    assert "more than 2 questions of the kind 'summarise'" in reason(own)


def test_no_more_bytes_leave_than_the_custodian_allows(own: SiteFolder, questions: list[Question]) -> None:
    first = ask(Gateway(own.folder), questions[0])
    text = (own.folder / "site.toml").read_text()
    most = len(encode(first)) + 10
    old = f"study_bytes = {own.study_bytes}"
    assert old in text
    (own.folder / "site.toml").write_text(text.replace(old, f"study_bytes = {most}"))
    gateway = Gateway(own.folder)
    assert ask(gateway, questions[0]) == first
    assert ask(gateway, questions[1]) == REFUSED
    assert f"a study may have at most {most} bytes" in reason(own)
    assert state(own).bytes == len(encode(first))


# ------------------------------------------------------------------------------ the adoption


def coarser(question: Question, **changes: Any) -> Adopt:
    """Another adoption that the approved study offers."""
    assert isinstance(question, Adopt)
    changed = replace(question, **changes)
    count = len(changed.sites)
    scaling = replace(changed.scaling, sites=count, site_distances=np.zeros((count, count)))
    return replace(changed, scaling=scaling)


def test_a_second_adoption_is_refused(own: SiteFolder, questions: list[Question]) -> None:
    """Differences between two plans' sums, or between two seeds' folds, would reveal smaller groups."""
    gateway = Gateway(own.folder)
    ask_all(gateway, questions[:4])
    other = coarser(questions[3], sites=("north", "south"))
    assert ask(gateway, other) == REFUSED
    assert "a second adoption" in reason(own)
    assert isinstance(ask(Gateway(own.folder), questions[3]), Adopted)  # the same again, after a restart


def test_a_study_that_may_start_again_loses_sites_and_gains_none(
    own: SiteFolder, questions: list[Question]
) -> None:
    gateway = Gateway(own.folder)
    ask_all(gateway, questions[:4], RESTARTING)
    other = coarser(questions[3], sites=("north", "west"))
    assert ask(gateway, other, RESTARTING) == REFUSED
    assert "other sites than in the first adoption" in reason(own)
    fewer = coarser(questions[3], sites=("north", "south"))
    assert isinstance(ask(gateway, fewer, RESTARTING), Adopted)
    assert state(own, RESTARTING).sites == ("north", "south", "east")
    third = coarser(questions[3], sites=("north", "east"))
    assert ask(gateway, third, RESTARTING) == REFUSED


def test_another_seed_of_the_study_is_another_study(own: SiteFolder, questions: list[Question]) -> None:
    reply = ask(Gateway(own.folder), coarser(questions[3], seed=2))
    assert isinstance(reply, Refusal)
    assert (reply.kind, reply.found) == ("ApprovalError", "another seed to adopt")


# --------------------------------------------------------------------------------- the table


def change(tmp_path: Path, table: pd.DataFrame) -> None:
    table.to_parquet(tmp_path / "north.parquet")


def longer(rows: int) -> pd.DataFrame:
    """The table of north with more people."""
    north = tables()["north"]
    return pd.concat([north, north.tail(rows).assign(a=lambda t: t["a"] + 0.01)], ignore_index=True)


def test_a_changed_table_is_not_the_one_that_was_approved(
    own: SiteFolder, questions: list[Question], tmp_path: Path
) -> None:
    first = ask(Gateway(own.folder), questions[0])
    north = tables()["north"]
    for table in (longer(1), longer(20), north.assign(y=north["y"].where(north.index > 0, 0.0))):
        change(tmp_path, table)
        reply = ask(Gateway(own.folder), questions[0])
        assert isinstance(reply, Refusal)
        assert (reply.kind, reply.found) == (
            "ApprovalError",
            "a table that has changed since this study was approved",
        )
    change(tmp_path, north.sample(frac=1.0, random_state=1))  # the same people in another order
    assert ask(Gateway(own.folder), questions[0]) == first


@pytest.mark.parametrize("how", ["the same study", "another study"])
def test_a_table_with_one_row_more_is_refused_under_a_new_approval_too(
    own: SiteFolder, questions: list[Question], tmp_path: Path, how: str
) -> None:
    """The difference between the two tables' sums would be this person."""
    ask(Gateway(own.folder), questions[0])
    asked = STUDY if how == "the same study" else RESTARTING
    for rows, refused in ((1, True), (4, True), (5, False)):
        change(tmp_path, longer(rows))
        approve(own, asked)
        reply = ask(Gateway(own.folder), questions[0], asked)
        assert (reply == REFUSED) == refused
        assert not refused or "differs in fewer people" in reason(own)


def test_every_earlier_table_is_remembered(
    own: SiteFolder, questions: list[Question], tmp_path: Path
) -> None:
    """The third table differs in enough people from the second, and in one from the first."""
    ask(Gateway(own.folder), questions[0])
    north = tables()["north"]
    for table, refused in ((longer(10), False), (north.head(129), True), (north, False)):
        change(tmp_path, table)
        approve(own)
        assert (ask(Gateway(own.folder), questions[0]) == REFUSED) == refused


def test_studies_of_other_columns_are_compared_with_their_own_kind(
    own: SiteFolder, questions: list[Question], tmp_path: Path
) -> None:
    ask(Gateway(own.folder), questions[0])
    other = study("fewer columns", method=METHOD)
    other = other.with_changes(columns=other.columns.model_copy(update={"covariates": ("a", "b")}))
    approve(own, other)
    assert not isinstance(ask(Gateway(own.folder), Describe(other.columns), other), Refusal)


def test_without_its_key_nobody_can_look_a_person_up(tmp_path: Path) -> None:
    frame = tables()["north"][["a", "b", "c", "w", "y"]]
    files = []
    for name, key in (("one", b"1" * 32), ("two", b"2" * 32)):
        Allowances(tmp_path / name, 5).open(STUDY.hash, "approval", frame, key)
        (file,) = (tmp_path / name).glob("*.people")
        files.append(set(file.read_text().split()))
    assert len(files[0]) == len(files[1]) == len(frame) + 1
    assert not files[0] & files[1]


# ---------------------------------------------------------------------------------- the salt


def test_the_salt_is_kept_for_the_life_of_a_study_and_differs_between_studies(
    own: SiteFolder, questions: list[Question]
) -> None:
    ask(Gateway(own.folder), questions[0])
    ask(Gateway(own.folder), questions[0], RESTARTING)
    first = state(own)
    assert len(first.salt) == 32 and state(own, RESTARTING).salt != first.salt
    approve(own)  # once more
    ask(Gateway(own.folder), questions[0])
    again = state(own)
    assert again.salt == first.salt and again.approval != first.approval
    assert again.kinds == {"describe": 1}  # a new approval starts with nothing spent


@pytest.mark.parametrize("rehearsal", [True, False])
def test_random_numbers_follow_the_seed_in_a_rehearsal_only(
    tmp_path: Path, questions: list[Question], rehearsal: bool
) -> None:
    asked = study(method={**METHOD, "folds": 2, "repeats": 1})
    found = []
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        source = written(tmp_path / place, tables())["north"]
        own = SiteFolder.create(
            tmp_path / place / "north", "north", source, limits=Limits(cell=2), rehearsal=rehearsal
        )
        approve(own, asked)
        gateway = Gateway(own.folder)
        adopting = coarser(questions[3], settings=asked.method.settings)
        assert isinstance(ask(gateway, adopting, asked), Adopted)
        (site,) = gateway._open.values()
        assert site.adopted is not None
        found.append(np.asarray(site.adopted.rows.fold))
    assert np.array_equal(*found) == rehearsal


def test_a_damaged_state_refuses_everything(own: SiteFolder, questions: list[Question]) -> None:
    ask(Gateway(own.folder), questions[0])
    (path,) = own.allowances.glob("*.json")
    for content in (b"", b"{}", path.read_bytes()[:-20]):
        path.write_bytes(content)
        with pytest.raises(ResultsError, match="restore an undamaged copy"):
            state(own)
        reply = ask(Gateway(own.folder), questions[1])
        assert reply == Refusal("ResultsError", *CONSTANT["ResultsError"])
