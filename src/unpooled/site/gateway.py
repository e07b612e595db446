"""Where a site is asked from outside: approved studies only, within limits, and nothing off the record."""

from __future__ import annotations

import json
from pathlib import Path

from unpooled.errors import LimitRefusal, MessageError, ResultsError, UnpooledError
from unpooled.maths.linear_algebra import one_blas_thread
from unpooled.methods.method import spelled_out
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.envelope import Answered, Asked, digest, open_question
from unpooled.protocol.messages import Message, Question, Refusal
from unpooled.site.answer import answer
from unpooled.site.approval import Approvals, permit
from unpooled.site.folder import SiteFolder
from unpooled.site.ledger import Ledger
from unpooled.site.site import Site, open_site
from unpooled.study import Study


class Gateway:
    """Stands beside the rows for as long as a study runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = SiteFolder.read(folder)
        self._ledger = Ledger(self._folder.ledger)
        self._approvals = Approvals(self._folder.approvals)
        self._open: dict[str, Site] = {}

    def answer(self, sealed: bytes) -> bytes:
        """A sealed reply to a sealed question; where anything is wrong, a refusal in words."""
        return Answered(self._folder.name, digest(sealed), self._reply(sealed)).seal()

    def _reply(self, sealed: bytes) -> bytes:
        try:
            asked = open_question(sealed)
            study, question = _study(asked), _question(asked)
        except UnpooledError as error:
            return encode(refusal(error))
        reply = self._within_limits(study, question)
        try:
            self._record(study, asked.round, question, reply)
        except ResultsError as error:  # what is not on record does not leave
            return encode(refusal(error))
        return encode(reply)

    def _within_limits(self, study: Study, question: Question) -> Message:
        try:
            reply = self._permitted(study, question)
            if (found := len(encode(reply))) > self._folder.reply_bytes:
                raise _too_large(found, self._folder.reply_bytes)
            return reply
        except UnpooledError as error:
            return refusal(error)
        except Exception as error:  # its message may quote a row
            return _defect(error)

    def _permitted(self, study: Study, question: Question) -> Message:
        self._approvals.require(study)
        permit(study, question)
        if study.hash not in self._open:
            site = open_site(self._folder.name, self._folder.source, study, self._folder.limits)
            self._open = {study.hash: site}
        with one_blas_thread():  # as in one process: the order of a sum is part of the number
            return answer(self._open[study.hash], question)

    def _record(self, study: Study, number: int, question: Question, reply: Message) -> None:
        site = self._open.get(study.hash)
        stages = {} if site is None or site.adopted is None else site.adopted.stages
        self._ledger.record(study.hash, number, question.label, reply, encode(reply), stages=stages)


def refusal(error: UnpooledError) -> Refusal:
    return Refusal(type(error).__name__, error.expected, error.found, error.remedy)


def _study(asked: Asked) -> Study:
    try:
        return spelled_out(Study(**json.loads(asked.study)))
    except (ValueError, TypeError):
        raise MessageError(
            "a question must come with its study", found="no study", remedy="run one version on every party"
        ) from None


def _question(asked: Asked) -> Question:
    question = decode(asked.question)
    if isinstance(question, Question):
        return question
    raise MessageError(
        "a site answers questions", found=type(question).__name__, remedy="run one version on every party"
    )


def _defect(error: Exception) -> Refusal:
    return Refusal(
        "FitError",
        "the site must be able to answer",
        f"an unexpected {type(error).__name__} there",
        "the site's custodian finds more with `unpooled site review`; please report it",
    )


def _too_large(found: int, most: int) -> LimitRefusal:
    return LimitRefusal(
        f"a reply of at most {most:,} bytes may leave the site",
        found=f"one of {found:,} bytes",
        remedy="ask for fewer draws or features, or let the custodian raise reply_bytes",
    )
