"""The one loop: a procedure's questions go out to every site, aggregated replies come back.

The caller owns the loop, so progress, journal and checkpoint are plain bodies around it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from unpooled.coordinator.aggregate import aggregate
from unpooled.coordinator.checkpoint import Checkpoint, require_same
from unpooled.maths.linear_algebra import one_blas_thread
from unpooled.optimise.procedure import Procedure, plain
from unpooled.protocol.engine import Engine, Traffic
from unpooled.protocol.messages import Adopt, Describe, Message, Summarise, Tree, label

T = TypeVar("T")


@dataclass(frozen=True)
class Round:
    """What happened in one exchange."""

    number: int
    question: str
    seconds: float
    traffic: dict[str, Traffic]
    replayed: bool
    objective: float | None = None


class Conduct(Generic[T]):
    """Runs a procedure over an engine; iterate over its rounds, then read `result`."""

    result: T

    def __init__(self, procedure: Procedure[T], engine: Engine, checkpoint: Checkpoint | None = None) -> None:
        self._procedure, self._engine, self._checkpoint = procedure, engine, checkpoint

    def __iter__(self) -> Iterator[Round]:
        reply: Tree = None
        number = 0
        try:
            while True:
                with one_blas_thread():
                    question, objective = plain(self._procedure.send(reply))
                    number += 1
                    reply, record = self._round(number, question, objective)
                yield record
        except StopIteration as done:
            self.result = done.value
        finally:
            self._procedure.close()

    def _round(self, number: int, question: Message, objective: float | None) -> tuple[Tree, Round]:
        start = time.perf_counter()
        stored = None if self._checkpoint is None else self._checkpoint.recall(question)
        # A site that restarts has to adopt the schema again, and its table may have changed meanwhile, so
        # these questions are always put.
        if stored is not None and not isinstance(question, Describe | Summarise | Adopt):
            return stored, self._record(number, question, start, {}, True, objective)
        replies, traffic = self._engine.exchange(question)
        reply = aggregate(replies)
        if self._checkpoint is not None:
            if stored is None:
                self._checkpoint.append(question, reply)
            else:
                require_same(stored, reply)
        return reply, self._record(number, question, start, traffic, stored is not None, objective)

    @staticmethod
    def _record(
        number: int,
        question: Message,
        start: float,
        traffic: dict[str, Traffic],
        replayed: bool,
        objective: float | None,
    ) -> Round:
        return Round(number, label(question), time.perf_counter() - start, traffic, replayed, objective)


def run(procedure: Procedure[T], engine: Engine) -> T:
    """A procedure's result, where nobody watches its rounds."""
    conduct = Conduct(procedure, engine)
    for _ in conduct:
        pass
    return conduct.result
