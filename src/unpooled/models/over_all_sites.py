"""Effects over all sites together, for studies that leave out effects by site.

A stage that sends effects by site is wrapped, so that it sends sums over people instead. The coordinator puts
their quotient in the place of the effects by site, as if there were one site, so that methods need not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import jax
import numpy as np

from unpooled.optimise.procedure import Procedure
from unpooled.protocol.messages import Ask, Message, Question, Replies, Statistics, Together
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds, Stage

T = TypeVar("T")
SUMS = "over_all_sites"
"""The key of the sums that take the place of effects by site."""


class OverAllSites(Stage):
    """A stage whose numbers by site are sent as sums over sites."""

    stage: Stage

    @property
    def reveals(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return f"for sums over sites only: {self.stage.reveals}"

    @property
    def often(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.stage.often

    @property
    def in_batches(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.stage.in_batches

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        found = self.stage.of_batch(parameters, rows)
        return self._summed(found, self.stage.people_sums(found.per_site, rows.present.sum()))

    def of_batch(self, parameters: Parameters, rows: Rows) -> Statistics:
        return self.stage.of_batch(parameters, rows)

    def merged(self, parts: Statistics) -> Statistics:
        each = self._summed(parts, self.stage.people_sums(parts.per_site, parts.per_site["people"]))
        return super().merged(each)

    def bounds(self) -> Bounds:
        return self.stage.bounds()

    @staticmethod
    def _summed(found: Statistics, sums: Arrays) -> Statistics:
        return Statistics({**found.summed, SUMS: sums})


def without_sites(stages: Mapping[str, Stage]) -> dict[str, Stage]:
    """The stages of a study without effects by site."""
    return {name: OverAllSites(stage) if stage.of_effects else stage for name, stage in stages.items()}


def as_one_site(procedure: Procedure[T], stages: Mapping[str, Stage]) -> Procedure[T]:
    """A method's procedure, for which all sites together look like one site in the statistics of effects."""
    try:
        question = next(procedure)
        while True:
            question = procedure.send(_as_one(question, (yield question), stages))
    except StopIteration as done:
        return done.value
    finally:
        procedure.close()


def _as_one(question: Question, reply: Message, stages: Mapping[str, Stage]) -> Message:
    asked = getattr(question, "question", question)  # a question with the objective noted on it
    if isinstance(asked, Together) and isinstance(reply, Replies):
        parts = zip(asked.questions, reply.replies, strict=True)
        return replace(reply, replies=tuple(_as_one(part, found, stages) for part, found in parts))
    if not (isinstance(asked, Ask) and isinstance(reply, Statistics) and SUMS in reply.summed):
        return reply
    summed = dict(reply.summed)
    own = stages[asked.stage].of_people(jax.tree.map(np.asarray, summed.pop(SUMS)))
    return Statistics(summed, jax.tree.map(lambda leaf: leaf[:, None], own))
