"""A study asked again from its stored replies, without any site: are the stored questions its own?"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unpooled.coordinator.checkpoint import StoredRound, read_rounds, stored_reply
from unpooled.coordinator.compare import difference
from unpooled.coordinator.run import Fitted, study_procedure
from unpooled.errors import MessageError, ResultsError, UnpooledError
from unpooled.maths.linear_algebra import one_blas_thread
from unpooled.optimise.procedure import Procedure, plain
from unpooled.protocol.codec import decode
from unpooled.protocol.messages import Question
from unpooled.study import Study


@dataclass(frozen=True)
class Replay:
    """The rounds of one checkpoint, after a replay that asked the same questions."""

    name: str
    """Name of the checkpoint's file."""
    rounds: tuple[StoredRound, ...]
    questions: tuple[Question, ...]
    """The stored questions, decoded."""
    sites: tuple[str, ...]
    end: Question | Fitted
    """The question after the last stored round or, if the study is finished, the fit."""


def replay(study: Study, path: Path) -> Replay:
    """Ask the study's questions, answer them from the record, and compare them with the record.

    The study must have every setting of its method filled in. An error names the first round that differs.
    """
    rounds = read_rounds(path)
    sites = tuple(rounds[0].digests) if rounds else ()
    questions: list[Question] = []
    with closing(study_procedure(study)) as procedure:
        reply: Any = None
        for number, stored in enumerate(rounds, start=1):
            where = f"round {number} of {path.name}"
            asked = _next(procedure, reply, where)
            if not isinstance(asked, Question):
                raise unlike(f"{where} is left over: the study has ended before it")
            questions.append(_question(stored, where))
            departs = difference(asked, questions[-1])
            if departs is not None:
                raise unlike(f"an altered question in {where} ({asked.label}): {departs}")
            if tuple(stored.digests) != sites:
                raise unlike(f"{where} has other sites than round 1")
            reply = stored_reply(stored, path)
        end = _next(procedure, reply, f"the end of {path.name}")
    return Replay(path.name, tuple(rounds), tuple(questions), sites, end)


def unlike(found: str) -> ResultsError:
    return ResultsError(
        "the stored rounds and results must be those of the study",
        found=found,
        remedy="ask the coordinator to explain it; audit with the version of unpooled that ran the study",
    )


def _next(procedure: Procedure[Fitted], reply: Any, where: str) -> Question | Fitted:
    """The next question, or the fit after the last reply."""
    try:
        with one_blas_thread():
            return plain(procedure.send(reply))[0]
    except StopIteration as done:
        return done.value
    except UnpooledError as error:
        found = error.found
    except Exception as error:  # a reply that no site has given may break a method anywhere
        found = f"an unexpected {type(error).__name__}"
    raise unlike(f"the stored replies before {where} cannot be used: {found}")


def _question(stored: StoredRound, where: str) -> Question:
    try:
        found = decode(stored.question)
    except MessageError:
        found = None
    if not isinstance(found, Question):
        raise unlike(f"{where} has no question")
    return found
