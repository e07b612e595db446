"""A message is two classes: what others say of it, they read from these."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from unpooled.coordinator.aggregate import aggregate
from unpooled.coordinator.checkpoint import Checkpoint
from unpooled.disclosure.reveals import reveals
from unpooled.errors import ApprovalError, SiteLost
from unpooled.protocol import messages
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.duplicate_messages import LeaveOut
from unpooled.protocol.key_messages import Meet
from unpooled.protocol.messages import Ask, Message, Question, Reply, SiteReplies, Together, question_kinds
from unpooled.protocol.records import Parameters
from unpooled.protocol.table_messages import Describe
from unpooled.site.answer import answer
from unpooled.site.approval import permit
from unpooled.site.ledger import Ledger
from unpooled.site.site import Site
from unpooled.study import Study

STUDY = Study(treatment="w", outcome="y", covariates=["a"])


@pytest.fixture
def toy() -> Iterator[tuple[Any, Any]]:
    """A question and a reply that the package does not know."""

    @dataclass(frozen=True)
    class Counted(Reply):
        reveals: ClassVar[str] = "number of people"
        added: ClassVar[bool] = True
        people: int

        @classmethod
        def combine(cls, replies: Mapping[str, Any]) -> Message:
            return cls(sum(reply.people for reply in replies.values()))

    @dataclass(frozen=True)
    class CountPeople(Question):
        reply: ClassVar[type[Reply]] = Counted
        column: str

        def mismatch(self, study: Study) -> str | None:
            return None if self.column in study.columns.covariates else "a count of another column"

    yield CountPeople, Counted
    del CountPeople, Counted
    gc.collect()  # a class is known by its name until it is collected


def test_every_question_names_its_reply() -> None:
    own = [*question_kinds().values()]
    assert {Describe, Ask, Meet, LeaveOut} < set(own)
    assert all(issubclass(kind.reply, Reply) for kind in own)


def test_both_classes_travel(toy: Any) -> None:
    question, reply = toy
    for message in (question("a"), reply(3)):
        assert decode(encode(message)) == message


def test_only_questions_for_statistics_and_gradients_are_asked_together(toy: Any) -> None:
    """Questions that prepare a study are asked one at a time, so that each is refused on its own."""
    question, reply = toy
    asked = Ask("ridge", Parameters())
    assert Together((asked, asked)).label == "ridge: statistics"
    for other in (question("a"), reply(3), Describe(STUDY.columns), Together((asked,))):
        with pytest.raises(TypeError, match="statistics or a gradient"):
            Together((asked, other))
    for many in ([asked], (asked,) * 101):
        with pytest.raises(TypeError, match="at most 100"):
            Together(many)  # type: ignore[arg-type]


def test_people_read_its_name_and_what_its_reply_reveals(toy: Any) -> None:
    question, reply = toy
    assert question("a").label == "count people"
    assert question_kinds()["count people"] is question
    assert reveals("count people", {}) == reply.reveals == "number of people"
    assert reveals("count people + count people", {}) == "number of people"


def test_a_question_outside_the_approved_study_is_refused(toy: Any) -> None:
    question, _ = toy
    permit(STUDY, question("a"))
    with pytest.raises(ApprovalError, match="a count of another column"):
        permit(STUDY, question("z"))


def test_replies_are_combined_as_their_class_says(toy: Any) -> None:
    _, reply = toy
    assert aggregate({"north": reply(3), "south": reply(4)}) == reply(7)
    with pytest.raises(SiteLost, match="another shape"):
        aggregate({"north": reply(3), "south": reply(4), "east": reply("many")})


def test_replies_that_are_not_combined_stay_apart() -> None:
    adopted = {"north": messages.Adopted(3), "south": messages.Adopted(4)}
    assert aggregate(adopted) == SiteReplies(adopted)


def test_a_resumed_study_recalls_the_combined_reply(toy: Any, tmp_path: Path) -> None:
    question, reply = toy
    Checkpoint(tmp_path / "rounds").append(question("a"), reply(7))
    assert Checkpoint(tmp_path / "rounds", resume=True).recall(question("a")) == reply(7)


def test_the_ledger_records_what_left(toy: Any, tmp_path: Path) -> None:
    question, reply = toy
    ledger, asked = Ledger(tmp_path / "ledger.jsonl"), question("a")
    entry = ledger.record("s", 1, asked, encode(asked), reply(7), encode(reply(7)))
    assert (entry.question, entry.kind, entry.reveals) == ("count people", "Counted", "number of people")
    assert entry.shapes == ("people: number",)


def test_a_site_without_a_case_for_it_refuses(toy: Any) -> None:
    import pandas as pd

    question, _ = toy
    found = answer(Site("s", pd.DataFrame(), STUDY.columns), question("a"))
    assert isinstance(found, messages.Refusal)
    assert (found.kind, found.found) == ("MessageError", "CountPeople")


def test_a_question_that_does_not_say_to_which_study_it_belongs_is_refused() -> None:
    study = Study(treatment="w", outcome="y", covariates=["a"])
    assert Question().mismatch(study) == "a question that no study asks"
    assert Ask("ridge", Parameters()).mismatch(study) is None
