"""The main loop: send a procedure's questions to every site and return the aggregated replies to it.

The caller iterates over the rounds, and adds progress reports and the journal in the loop body.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from unpooled.coordinator.aggregate import aggregate
from unpooled.coordinator.checkpoint import Checkpoint, require_same
from unpooled.maths.linear_algebra import one_blas_thread
from unpooled.optimise.procedure import Procedure, plain
from unpooled.protocol.codec import encode
from unpooled.protocol.engine import Engine, Traffic
from unpooled.protocol.key_messages import Masked
from unpooled.protocol.messages import Message, Question, Reply

T = TypeVar("T")


@dataclass(frozen=True)
class Round:
    """A record of one exchange."""

    number: int
    question: str
    seconds: float
    traffic: dict[str, Traffic]
    replayed: bool
    objective: float | None = None
    masked: bool = False
    """Whether sums were masked, so that those of a single site are not known."""


class Conduct(Generic[T]):
    """Runs a procedure over an engine; iterate over its rounds, then read `result`."""

    result: T

    def __init__(self, procedure: Procedure[T], engine: Engine, checkpoint: Checkpoint | None = None) -> None:
        self._procedure, self._engine, self._checkpoint = procedure, engine, checkpoint

    def __iter__(self) -> Iterator[Round]:
        reply: Message | None = None
        number = 0
        try:
            while True:
                with one_blas_thread():
                    asked = next(self._procedure) if reply is None else self._procedure.send(reply)
                    question, objective = plain(asked)
                    number += 1
                    reply, record = self._round(number, question, objective)
                yield record
        except StopIteration as done:
            self.result = done.value
        finally:
            self._procedure.close()

    def _round(self, number: int, question: Question, objective: float | None) -> tuple[Message, Round]:
        start = time.perf_counter()
        stored = None if self._checkpoint is None else self._checkpoint.recall(question)
        # A restarted site must adopt the study again, and its table may have changed in the meantime.
        if stored is not None and not question.repeated_on_resume:
            return stored, self._record(number, question, start, {}, True, objective)
        replies, traffic = self._engine.exchange(question)
        reply = aggregate(replies)
        if self._checkpoint is not None:
            if stored is None:
                self._checkpoint.append(question, reply, _digests(replies, traffic))
            else:
                require_same(stored, reply)
        record = self._record(number, question, start, traffic, stored is not None, objective)
        masked = any(isinstance(one, Masked) for one in replies.values())
        return reply, replace(record, masked=masked)

    @staticmethod
    def _record(
        number: int,
        question: Question,
        start: float,
        traffic: dict[str, Traffic],
        replayed: bool,
        objective: float | None,
    ) -> Round:
        return Round(number, question.label, time.perf_counter() - start, traffic, replayed, objective)


def _digests(replies: Mapping[str, Reply], traffic: Mapping[str, Traffic]) -> dict[str, str]:
    """SHA-256 of each site's reply: as the engine received it or, if it does not say, encoded again."""
    return {
        site: traffic[site].digest or hashlib.sha256(encode(reply)).hexdigest()
        for site, reply in replies.items()
    }


def run(procedure: Procedure[T], engine: Engine) -> T:
    """Run a procedure to its end and return its result."""
    conduct = Conduct(procedure, engine)
    for _ in conduct:
        pass
    return conduct.result
