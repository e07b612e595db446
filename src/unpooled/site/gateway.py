"""The gateway answers external questions: approved studies only, within limits, recorded in the ledger."""

from __future__ import annotations

import hashlib
import json
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from unpooled import errors
from unpooled.errors import ApprovalError, LimitRefusal, MessageError, ResultsError, UnpooledError
from unpooled.maths.linear_algebra import one_blas_thread
from unpooled.methods.method import with_explicit_settings
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.duplicate_messages import AboutPeople
from unpooled.protocol.envelope import Answered, Asked, open_question
from unpooled.protocol.envelope import digest as digest_of
from unpooled.protocol.fixed_point import Scale, offered
from unpooled.protocol.key_messages import Introduce, Masked, Meet
from unpooled.protocol.messages import Adopt, Gradient, Message, Question, Refusal, Replies, Reply, Statistics
from unpooled.site.allowance import Allowances, budget_of, may_meet, spend
from unpooled.site.answer import answer, hide
from unpooled.site.approval import Approvals, Decision, permit
from unpooled.site.duplicates import reopen, require_counted_once
from unpooled.site.folder import SiteFolder
from unpooled.site.identity import read_identity_key
from unpooled.site.known_sites import known_to
from unpooled.site.ledger import Ledger
from unpooled.site.private_files import append
from unpooled.site.session import LEAST_SITES, Party
from unpooled.site.site import Site, open_site
from unpooled.study import Study


class Gateway:
    """Answers questions for one site folder; keeps the current study's table open between questions."""

    def __init__(self, folder: Path) -> None:
        self._folder = SiteFolder.read(folder)
        self._ledger = Ledger(self._folder.ledger)
        self._approvals = Approvals(self._folder.approvals)
        self._allowances = Allowances(self._folder.allowances, self._folder.limits.cell)
        self._open: dict[tuple[str, str], Site] = {}

    def answer(self, sealed: bytes) -> bytes:
        """A sealed reply to a sealed question; if anything is wrong, a refusal."""
        reply = self._reply(sealed)
        return Answered(self._folder.name, digest_of(sealed), reply, self._ledger.head).seal()

    def _reply(self, sealed: bytes) -> bytes:
        try:
            asked = open_question(sealed)
            study, question = _study(asked), _question(asked)
        except UnpooledError as error:
            return encode(self._refusal(error))
        reply = self._within_limits(study, asked, question)
        try:
            self._record(study, asked, question, reply)
        except ResultsError as error:  # a reply that cannot be recorded does not leave
            return encode(self._refusal(error))
        except Exception as error:
            return encode(self._defect(error))
        return encode(reply)

    def _within_limits(self, study: Study, asked: Asked, question: Question) -> Message:
        try:
            return self._permitted(study, asked, question)
        except UnpooledError as error:
            return self._refusal(error)
        except Exception as error:
            return self._defect(error)

    def _permitted(self, study: Study, asked: Asked, question: Question) -> Message:
        approval = self._approvals.require(study)
        permit(study, question)
        site = self._site(study, approval)
        require_counted_once(site, question)
        spent = self._allowances.read(study.hash)
        budget = budget_of(study, self._folder.study_bytes)
        if isinstance(question, Introduce | Meet):
            reply = _answered(site, question, asked.round, None)
            if isinstance(question, Introduce):
                self._allowances.write(study.hash, may_meet(spent, budget, question.sites))
            return reply
        scale = self._scale(study, site, question, asked)
        digest = hashlib.sha256(asked.question).hexdigest()
        current = "" if site.adopted is None else site.adopted.question
        # A question about the statistics of another adoption is another question.
        name = hashlib.sha256(f"{current} {digest}".encode()).hexdigest() if question.of_stages else digest
        about_people = isinstance(question, AboutPeople)
        state = "" if site.duplicates is None or about_people else site.duplicates.state
        if state:  # other rows are left out than when the question was first answered
            name = hashlib.sha256(f"{state} {name}".encode()).hexdigest()
        repeated = name in spent.answered
        if repeated and not state and (scale is None or about_people):
            recorded = self._ledger.recorded(study.hash, digest)
            if recorded is not None and not (isinstance(question, Adopt) and current != digest):
                reply = decode(recorded)
                if not isinstance(reply, Masked):  # of which nothing can be made without those of other sites
                    return reply
        if not repeated:
            spent = spend(spent, budget, question, name, site.adopted)
            self._allowances.write(study.hash, spent)
        reply = _answered(site, question, asked.round, scale)
        size = len(encode(reply))
        if size > self._folder.reply_bytes:
            raise _too_large("reply", size, self._folder.reply_bytes, "reply_bytes")
        if not repeated:
            if spent.bytes + size > self._folder.study_bytes:
                raise _too_large("study", spent.bytes + size, self._folder.study_bytes, "study_bytes")
            self._allowances.write(study.hash, spent.model_copy(update={"bytes": spent.bytes + size}))
        return reply

    def _scale(self, study: Study, site: Site, question: Question, asked: Asked) -> Scale | None:
        """The scale on which the reply is masked; None if it need not be."""
        sites = 1 if site.session is None else len(site.session.secrets) + 1
        known = 1 if site.party is None or site.party.known is None else len(site.party.known) + 1
        if asked.scale:
            scale, adopted = Scale.unpacked(asked.scale), site.adopted
            people = adopted.scaling.people if adopted is not None and question.of_stages else None
            if sites >= LEAST_SITES and scale in offered(sites, people):
                return scale
        elif study.privacy.aggregation == "plain" or not (
            study.privacy.aggregation == "secure" or max(sites, known) >= LEAST_SITES
        ):
            return None
        raise ApprovalError(
            "statistics of this study leave a site only with masks",
            found="a question without masks or on another scale, or before three sites have exchanged keys",
            remedy='start the study again; to do without masks, have it reviewed with aggregation = "plain"',
        )

    def _site(self, study: Study, approval: Decision) -> Site:
        """The table of this study, read once under each approval."""
        if (study.hash, approval.id) not in self._open:
            known = known_to(self._folder, study, approval.identities)
            site = open_site(self._folder.name, self._folder.source, study, self._folder.limits)
            spent = self._allowances.open(study.hash, approval.id, site.frame, self._ledger.key)
            site.salt = None if self._folder.rehearsal else int(spent.salt, 16)
            identity = read_identity_key(self._folder.identity)
            site.party = Party(self._folder.name, study.hash, identity, known)
            reopen(site, self._folder.folder, approval.id, spent.table, site.salt)
            self._open = {(study.hash, approval.id): site}
        return self._open[study.hash, approval.id]

    def _record(self, study: Study, asked: Asked, question: Question, reply: Message) -> None:
        adopted = next((site.adopted for (name, _), site in self._open.items() if name == study.hash), None)
        stages, behind = ({}, None) if adopted is None else (adopted.stages, adopted.people)
        people = behind if isinstance(reply, Statistics | Gradient | Replies | Masked) else None
        self._ledger.record(
            study.hash,
            asked.round,
            question,
            asked.question,
            reply,
            encode(reply),
            stages=stages,
            people=people,
        )

    def _refusal(self, error: UnpooledError) -> Refusal:
        """A refusal as it leaves: details that depend on the table stay in the custodian's log."""
        kind = type(error).__name__
        if isinstance(error, ApprovalError | MessageError):  # about the question, not about the table
            return Refusal(kind, error.expected, error.found, error.remedy)
        log = self._folder.refusals
        with suppress(ResultsError):
            when = datetime.now(UTC).isoformat(timespec="seconds")
            append(log, f"{when} {kind}: {error.expected}; found {error.found}; try: {error.remedy}\n")
        told = kind if kind in CONSTANT else "LimitRefusal"  # whether limit or data is an answer in itself
        return Refusal(told, *CONSTANT[told])

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


def _answered(site: Site, question: Question, number: int, scale: Scale | None) -> Reply:
    with one_blas_thread():  # as in one process: the order of a sum changes its last digits
        reply = hide(site, answer(site, question), question, number, scale)
    if isinstance(reply, Refusal):
        raise error_of(reply)
    return reply


CUSTODIAN = "ask the custodian, who finds the reason in refusals.log in the site's folder"
CONSTANT = {
    "LimitRefusal": ("the site must be able and allowed to answer", "a question that it refuses", CUSTODIAN),
    "FitError": ("the site must be able to compute its answer", "a computation that failed", CUSTODIAN),
    "ResultsError": ("the site must be able to read and write its files", "a file it could not", CUSTODIAN),
}
"""What the coordinator is told of a refusal: one sentence for each kind, so that refusals reveal nothing."""


def error_of(refusal: Refusal) -> UnpooledError:
    """The error that a refusal stands for."""
    kind = getattr(errors, refusal.kind, LimitRefusal)
    return kind(refusal.expected, found=refusal.found, remedy=refusal.remedy)


def _study(asked: Asked) -> Study:
    try:
        return with_explicit_settings(Study(**json.loads(asked.study)))
    except (ValueError, TypeError, RecursionError):
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


def _too_large(what: str, found: int, most: int, key: str) -> LimitRefusal:
    return LimitRefusal(
        f"a {what} may have at most {most:,} bytes",
        found=f"{found:,} bytes",
        remedy=f"request fewer draws or features, or ask the custodian to raise {key}",
    )
