"""The gateway answers external questions: approved studies only, within limits, recorded in the ledger."""

from __future__ import annotations

import json
import traceback
from datetime import UTC, datetime
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
from unpooled.site.private_files import append
from unpooled.site.site import Site, open_site
from unpooled.study import Study


class Gateway:
    """Answers questions for one site folder; keeps the current study's table open between questions."""

    def __init__(self, folder: Path) -> None:
        self._folder = SiteFolder.read(folder)
        self._ledger = Ledger(self._folder.ledger)
        self._approvals = Approvals(self._folder.approvals)
        self._open: dict[str, Site] = {}

    def answer(self, sealed: bytes) -> bytes:
        """A sealed reply to a sealed question; if anything is wrong, a refusal with its reason."""
        reply = self._reply(sealed)
        return Answered(self._folder.name, digest(sealed), reply, self._ledger.head).seal()

    def _reply(self, sealed: bytes) -> bytes:
        try:
            asked = open_question(sealed)
            study, question = _study(asked), _question(asked)
        except UnpooledError as error:
            return encode(refusal(error))
        reply = self._within_limits(study, question)
        try:
            self._record(study, asked, question, reply)
        except ResultsError as error:  # a reply that cannot be recorded does not leave
            return encode(refusal(error))
        except Exception as error:
            return encode(self._defect(error))
        return encode(reply)

    def _within_limits(self, study: Study, question: Question) -> Message:
        try:
            reply = self._permitted(study, question)
            if (found := len(encode(reply))) > self._folder.reply_bytes:
                raise _too_large(found, self._folder.reply_bytes)
            return reply
        except UnpooledError as error:
            return refusal(error)
        except Exception as error:
            return self._defect(error)

    def _permitted(self, study: Study, question: Question) -> Message:
        self._approvals.require(study)
        permit(study, question)
        if study.hash not in self._open:
            site = open_site(self._folder.name, self._folder.source, study, self._folder.limits)
            self._open = {study.hash: site}
        with one_blas_thread():  # as in one process: the order of a sum changes its last digits
            return answer(self._open[study.hash], question)

    def _record(self, study: Study, asked: Asked, question: Question, reply: Message) -> None:
        site = self._open.get(study.hash)
        stages = {} if site is None or site.adopted is None else site.adopted.stages
        encoded = encode(reply)
        self._ledger.record(study.hash, asked.round, question, asked.question, reply, encoded, stages=stages)

    def _defect(self, error: Exception) -> Refusal:
        """A refusal because of a program error, which is logged without its message."""
        log = self._folder.errors
        try:
            append(log, trace(error))
            where = f"{log.name} in the site's folder shows where it occurred"
        except ResultsError:
            where = f"{log.name} in the site's folder could not be written"
        return Refusal(
            "FitError",
            "the site must be able to answer",
            f"an unexpected {type(error).__name__} at the site",
            f"{where}; please report it",
        )


def trace(error: BaseException) -> str:
    """The types and stacks of an error and its causes, without their messages, which may contain data."""
    lines = [datetime.now(UTC).isoformat(timespec="seconds")]
    chain: BaseException | None = error
    while chain is not None:
        lines.append(f"{type(chain).__module__}.{type(chain).__qualname__}")
        for frame in traceback.extract_tb(chain.__traceback__):
            lines.append(f"  {frame.filename}, line {frame.lineno}, in {frame.name}")
        chain = chain.__cause__ or chain.__context__
    return "\n".join(lines) + "\n\n"


def refusal(error: UnpooledError) -> Refusal:
    return Refusal(type(error).__name__, error.expected, error.found, error.remedy)


def _study(asked: Asked) -> Study:
    try:
        return spelled_out(Study(**json.loads(asked.study)))
    except (ValueError, TypeError):
        raise MessageError(
            "a question must come with its study",
            found="no valid study",
            remedy="run the same version of unpooled everywhere",
        ) from None


def _question(asked: Asked) -> Question:
    question = decode(asked.question)
    if isinstance(question, Question):
        return question
    raise MessageError(
        "a site answers only questions",
        found=type(question).__name__,
        remedy="run the same version of unpooled everywhere",
    )


def _too_large(found: int, most: int) -> LimitRefusal:
    return LimitRefusal(
        f"a reply may have at most {most:,} bytes",
        found=f"{found:,} bytes",
        remedy="request fewer draws or features, or ask the custodian to raise reply_bytes",
    )
