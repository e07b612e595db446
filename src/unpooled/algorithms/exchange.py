"""Procedures: generators that yield questions and receive aggregated replies. Blocks to build methods from."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from unpooled.protocol.messages import Ask, Message, PullBack, Together, Tree

T = TypeVar("T")
Procedure = Generator[Message, Tree, T]


def ask(stage: str, parameters: Tree) -> Procedure[Tree]:
    """S(θ) for a batch of θ: ``{"total": …, "each": …}``."""
    return (yield Ask(stage, parameters))


def pull_back(stage: str, parameters: Tree, cotangent: Tree) -> Procedure[Tree]:
    """Σ_s (∂S_s/∂θ)ᵀ·cotangent for a batch of θ."""
    return (yield PullBack(stage, parameters, cotangent))


def side_by_side(*procedures: Procedure[Any]) -> Procedure[list[Any]]:
    """Several procedures in lockstep, their questions in one exchange: rounds are the longest's, not the sum."""
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
            replies = yield Together(tuple(asked.values()))
            for index, reply in zip(asked, replies, strict=True):
                advance(index, reply)
    finally:
        for procedure in procedures:
            procedure.close()
    return results
