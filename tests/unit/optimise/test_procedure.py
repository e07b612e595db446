"""Procedures side by side: rounds are the longest's."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

from unpooled.optimise.procedure import Noted, ask, ask_each, noted, plain, side_by_side, vjp
from unpooled.protocol.messages import (
    Adopted,
    Ask,
    Gradient,
    Message,
    Question,
    Replies,
    SiteReplies,
    Statistics,
    Together,
    Vjp,
)
from unpooled.protocol.records import Parameters
from unpooled.protocol.table_messages import Describe
from unpooled.study import ColumnRoles


def _counting(name: str, rounds: int, closed: list[str]) -> Generator[Question, Any, list[Any]]:
    heard = []
    try:
        for number in range(rounds):
            reply = yield Ask(name, Parameters({"number": number}))
            heard.append(reply.summed)
    finally:
        closed.append(name)
    return heard


def _play(procedure: Generator[Question, Any, Any]) -> tuple[Any, list[Question]]:
    """Answer every question with its stage and number."""

    def reply(question: Question) -> Message:
        if isinstance(question, Together):
            return Replies(tuple(reply(part) for part in question.questions))
        assert isinstance(question, Ask)
        return Statistics(f"{question.stage}{question.parameters.free['number']}")

    asked: list[Question] = []
    answer = None
    while True:
        try:
            question, _ = plain(procedure.send(answer))
        except StopIteration as done:
            return done.value, asked
        asked.append(question)
        answer = reply(question)


def test_rounds_are_the_longest_procedures_not_the_sum() -> None:
    closed: list[str] = []
    lengths = {"a": 2, "b": 5, "c": 3}
    result, asked = _play(side_by_side(*[_counting(name, n, closed) for name, n in lengths.items()]))
    assert len(asked) == 5
    assert list(result) == [[f"{name}{i}" for i in range(n)] for name, n in lengths.items()]
    assert isinstance(asked[0], Together)
    assert isinstance(asked[4], Ask)  # the last one left asks alone
    assert sorted(closed) == ["a", "b", "c"]


def test_procedures_that_are_side_by_side_themselves_ask_in_one_exchange() -> None:
    closed: list[str] = []

    def one(name: str, rounds: int) -> Generator[Question, Any, list[Any]]:
        return _counting(name, rounds, closed)

    inner = side_by_side(one("b", 3), one("c", 2))
    result, asked = _play(side_by_side(one("a", 2), inner, one("d", 1)))
    assert list(result) == [["a0", "a1"], (["b0", "b1", "b2"], ["c0", "c1"]), ["d0"]]
    labels = [[part.label[0] for part in getattr(question, "questions", (question,))] for question in asked]
    assert labels == [["a", "b", "c", "d"], ["a", "b", "c"], ["b"]]
    assert sorted(closed) == ["a", "b", "c", "d"]


def test_a_procedure_without_questions_takes_no_round() -> None:
    result, asked = _play(side_by_side(_counting("a", 0, []), _counting("b", 1, [])))
    assert (result, len(asked)) == (([], ["b0"]), 1)


def test_closing_closes_every_procedure() -> None:
    closed: list[str] = []
    procedure = side_by_side(_counting("a", 9, closed), _counting("b", 9, closed))
    next(procedure)
    procedure.close()
    assert sorted(closed) == ["a", "b"]


COLUMNS = ColumnRoles(treatment="w", outcome="y", covariates=("a",))
STATISTICS = Statistics({"a": np.ones(1)})
GRADIENT = Gradient({"a": np.ones(1)})
EACH = {"north": Adopted(4), "south": Adopted(5)}


@pytest.mark.parametrize(
    ("procedure", "kind", "reply", "result"),
    [
        (lambda: ask("s", Parameters()), Ask, STATISTICS, STATISTICS),
        (lambda: vjp("s", Parameters(), STATISTICS), Vjp, GRADIENT, GRADIENT),
        (lambda: ask_each(Describe(COLUMNS)), Describe, SiteReplies(EACH), EACH),
    ],
    ids=["ask", "vjp", "ask_each"],
)
def test_ask_vjp_and_ask_each_put_one_question_each(
    procedure: Any, kind: type[Question], reply: Message, result: Any
) -> None:
    asking = procedure()
    assert isinstance(next(asking), kind)
    with pytest.raises(StopIteration) as done:
        asking.send(reply)
    assert done.value.value is result


def test_notes_are_for_watchers_and_do_not_travel() -> None:
    procedure = side_by_side(noted(_counting("a", 1, []), 7.0), noted(_counting("b", 1, []), 9.0))
    question = next(procedure)
    assert isinstance(question, Noted)
    sent, note = plain(question)
    assert note == 7.0
    assert isinstance(sent, Together)
    assert all(isinstance(part, Ask) for part in sent.questions)
