"""Procedures: generators that yield questions and receive aggregated replies; methods are built from them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from unpooled.protocol.messages import Ask, Message, PullBack, Together, Tree

T = TypeVar("T")
Procedure = Generator[Message, Tree, T]


@dataclass(frozen=True)
class Noted(Message):
    """A question with the objective reached so far: for whoever watches; only the question travels."""

    question: Message
    objective: float


def noted(procedure: Procedure[T], objective: float) -> Procedure[T]:
    """The same procedure, its questions carrying a note."""
    reply: Tree = None
    while True:
        try:
            question = procedure.send(reply)
        except StopIteration as done:
            return done.value
        reply = yield Noted(question, objective)


def plain(question: Message) -> tuple[Message, float | None]:
    """The question that travels, and the note if there is one."""
    return (question.question, question.objective) if isinstance(question, Noted) else (question, None)


def ask(stage: str, parameters: Tree) -> Procedure[Tree]:
    """S(θ) for a batch of θ: ``{"total": …, "each": …}``."""
    return (yield Ask(stage, parameters))


def pull_back(stage: str, parameters: Tree, cotangent: Tree) -> Procedure[Tree]:
    """Σ_s (∂S_s/∂θ)ᵀ·cotangent for a batch of θ."""
    return (yield PullBack(stage, parameters, cotangent))


def side_by_side(*procedures: Procedure[Any]) -> Procedure[list[Any]]:
    """Several procedures in lockstep, their questions in one exchange: as many rounds as the longest."""
    results: list[Any] = [None] * len(procedures)
    waiting: dict[int, Message] = {}

    def advance(index: int, reply: Tree) -> None:
        try:
            waiting[index] = procedures[index].send(reply)
        except StopIteration as done:
            results[index] = done.value
            waiting.pop(index, None)

    try:
        for index in range(len(procedures)):
            advance(index, None)
        while waiting:
            asked = dict(waiting)
            if len(asked) == 1:
                ((only, question),) = asked.items()
                advance(only, (yield question))
                continue
            questions, notes = zip(*[plain(question) for question in asked.values()], strict=True)
            together = Together(tuple(questions))
            replies = yield together if notes[0] is None else Noted(together, notes[0])
            for index, reply in zip(asked, replies, strict=True):
                advance(index, reply)
    finally:
        for procedure in procedures:
            procedure.close()
    return results
