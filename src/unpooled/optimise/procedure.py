"""Procedures: generators that yield questions and receive the combined replies of all sites."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, TypeVar, overload

from unpooled.protocol.messages import (
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

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")
Procedure = Generator[Question, Message, T]


@dataclass(frozen=True)
class Noted(Question):
    """A question annotated with the current objective for progress reports; only the question is sent."""

    question: Question
    objective: float


def noted(procedure: Procedure[T], objective: float) -> Procedure[T]:
    """Annotate every question of a procedure with the objective."""
    try:
        question = next(procedure)
        while True:
            question = procedure.send((yield Noted(question, objective)))
    except StopIteration as done:
        return done.value


def plain(question: Question) -> tuple[Question, float | None]:
    """The question to send, and the objective if it is annotated."""
    return (question.question, question.objective) if isinstance(question, Noted) else (question, None)


def ask(stage: str, parameters: Parameters) -> Procedure[Statistics]:
    """Request S(θ) for a batch of θ, combined over the sites."""
    reply = yield Ask(stage, parameters)
    assert isinstance(reply, Statistics)
    return reply


def vjp(stage: str, parameters: Parameters, cotangent: Statistics) -> Procedure[Gradient]:
    """Request Σ_s (∂S_s/∂θ)ᵀ·cotangent for a batch of θ."""
    reply = yield Vjp(stage, parameters, cotangent)
    assert isinstance(reply, Gradient)
    return reply


def ask_each(question: Question) -> Procedure[dict[str, Any]]:
    """Request the individual reply of every site, by name."""
    reply = yield question
    assert isinstance(reply, SiteReplies)
    return reply.replies


def _parts(question: Question) -> tuple[Question, ...]:
    return question.questions if isinstance(question, Together) else (question,)


@overload
def side_by_side(first: Procedure[A], second: Procedure[B], /) -> Procedure[tuple[A, B]]: ...


@overload
def side_by_side(*procedures: Procedure[T]) -> Procedure[tuple[T, ...]]: ...


def side_by_side(*procedures: Procedure[object]) -> Procedure[tuple[object, ...]]:
    """Run procedures in lockstep, combining their questions; the longest determines the number of rounds."""
    results: dict[int, object] = {}
    waiting: dict[int, Question] = {}

    def advance(index: int, reply: Message | None) -> None:
        procedure = procedures[index]
        try:
            waiting[index] = next(procedure) if reply is None else procedure.send(reply)
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
            together = Together(tuple(part for question in questions for part in _parts(question)))
            found = yield together if notes[0] is None else Noted(together, notes[0])
            assert isinstance(found, Replies)
            replies = iter(found.replies)
            for index, question in zip(asked, questions, strict=True):
                own = tuple(next(replies) for _ in _parts(question))
                advance(index, Replies(own) if isinstance(question, Together) else own[0])
    finally:
        for procedure in procedures:
            procedure.close()
    return tuple(results[index] for index in range(len(procedures)))


def prefixed(procedure: Procedure[T], prefix: str) -> Procedure[T]:
    """The same procedure, with a prefix to the names of the stages that it asks."""
    try:
        question = next(procedure)
        while True:
            question = procedure.send((yield _prefixed(question, prefix)))
    except StopIteration as done:
        return done.value


def _prefixed(question: Question, prefix: str) -> Question:
    if isinstance(question, Noted):
        return Noted(_prefixed(question.question, prefix), question.objective)
    if isinstance(question, Together):
        return Together(tuple(_prefixed(part, prefix) for part in question.questions))
    return (
        replace(question, stage=f"{prefix}{question.stage}") if isinstance(question, Ask | Vjp) else question
    )
