"""The audit of one site's ledger: it holds the questions and replies that the results have, and no others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from unpooled.coordinator.aggregate import aggregate
from unpooled.coordinator.compare import difference
from unpooled.coordinator.replay import Replay
from unpooled.errors import MessageError, ResultsError, UnpooledError
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.key_messages import KEY_EXCHANGE
from unpooled.protocol.messages import Message, Question, Reply


class LedgerLine(NamedTuple):
    """What an audit needs of one line of a ledger."""

    number: int
    study: str
    question: str
    asked: str
    """SHA-256 of the question as the site received it."""
    digest: str
    """SHA-256 of the reply."""
    hash: str
    refused: bool


@dataclass(frozen=True)
class SiteLedger:
    """A site's ledger, which has been verified."""

    site: str
    lines: tuple[LedgerLine, ...]
    """All lines, also those of other studies."""
    reply: Callable[[int], bytes]
    """The reply that is kept for a line."""


@dataclass(frozen=True)
class SiteAudit:
    """What the audit of one ledger found: how much of it belongs to the study."""

    site: str
    lines: int
    questions: int
    repeated: int
    """Lines that answer a question again, for example after a restart."""
    refused: tuple[int, ...]
    """Lines with a refusal."""
    heads: int
    """How often the journal has the ledger's number of lines and last hash."""


class _Expected(NamedTuple):
    asked: str
    where: str
    digest: str | None
    """The stored digest of the reply; None for a question whose round was not completed."""


def audit_ledger(
    ledger: SiteLedger, study: str, replays: Sequence[Replay], journal: Iterable[Mapping[str, Any]]
) -> SiteAudit:
    """Compare a ledger with the stored rounds; an error names the first one that differs, and how."""
    own = [line for line in ledger.lines if line.study == study]
    answered = [line for line in own if not line.refused and line.question not in KEY_EXCHANGE]
    expected = [one for replay in replays for one in _expected(replay, ledger.site)]
    _same_questions(ledger.site, _first(expected), _first(answered))
    replies: dict[str, set[str]] = {}
    for line in answered:
        replies.setdefault(line.asked, set()).add(line.digest)
    for one in expected:
        if one.digest is not None and one.digest not in replies[one.asked]:
            raise _unlike(ledger.site, f"another reply in {one.where} than the one that left the site")
    heads = _heads(ledger, journal)
    refused = tuple(line.number for line in own if line.refused)
    questions = len(_first(answered))
    return SiteAudit(ledger.site, len(own), questions, len(answered) - questions, refused, heads)


def audit_sums(replay: Replay, ledgers: Mapping[str, SiteLedger], study: str) -> None:
    """Combine the replies that the sites keep, and compare the result with the stored combination."""
    lines = {
        site: {(line.asked, line.digest): line.number for line in ledger.lines if line.study == study}
        for site, ledger in ledgers.items()
    }
    for number, (stored, question) in enumerate(zip(replay.rounds, replay.questions, strict=True), start=1):
        replies: dict[str, Reply] = {}
        for index, site in enumerate(replay.sites):
            line = lines[site][_digest(question.to_site(index)), stored.digests[site]]
            replies[site] = _reply(ledgers[site].reply(line), site)
        departs = _combined(replies, decode(stored.reply))
        if departs is not None:
            raise _unlike(
                ", ".join(replay.sites),
                f"the stored reply of round {number} of {replay.name} is not that of the sites: {departs}",
            )


def _combined(replies: Mapping[str, Reply], stored: Message) -> str | None:
    try:
        return difference(aggregate(replies), stored)
    except UnpooledError as error:
        return error.found


def _expected(replay: Replay, site: str) -> list[_Expected]:
    """The questions of one start of the study, as they were addressed to this site."""
    if site not in replay.sites:
        return []
    index, found = replay.sites.index(site), []
    for number, (stored, question) in enumerate(zip(replay.rounds, replay.questions, strict=True), start=1):
        where = f"round {number} of {replay.name} ({question.label})"
        found.append(_Expected(_digest(question.to_site(index)), where, stored.digests[site]))
    if isinstance(replay.end, Question):
        where = f"round {len(replay.rounds) + 1} of {replay.name} ({replay.end.label})"
        found.append(_Expected(_digest(replay.end.to_site(index)), where, None))
    return found


def _same_questions(site: str, expected: dict[str, Any], found: dict[str, Any]) -> None:
    """Compare the questions in the order in which they were first asked."""
    remaining = list(found.values())
    for one in expected.values():
        if remaining and remaining[0].asked == one.asked:
            remaining.pop(0)
        elif one.digest is not None:
            raise _unlike(site, _how(one, remaining, expected))
    if remaining:
        raise _unlike(site, f"an extra question in {_line(remaining[0])}, which the results do not have")


def _how(one: _Expected, remaining: list[LedgerLine], expected: Mapping[str, Any]) -> str:
    if not remaining or remaining[0].asked in expected:
        return f"no line for {one.where}, which the site has answered according to the results"
    if any(line.asked == one.asked for line in remaining):
        return f"an extra question in {_line(remaining[0])}, before {one.where}"
    return f"an altered question in {_line(remaining[0])}, in place of {one.where}"


def _line(line: LedgerLine) -> str:
    return f"line {line.number} of the ledger ({line.question})"


def _first(items: Iterable[Any]) -> dict[str, Any]:
    """The items by question, the first one of each."""
    found: dict[str, Any] = {}
    for item in items:
        found.setdefault(item.asked, item)
    return found


def _heads(ledger: SiteLedger, journal: Iterable[Mapping[str, Any]]) -> int:
    """How many heads of the ledger the journal has; raises if one is not the ledger's."""
    count = 0
    for happened in journal:
        head = happened.get("ledgers", {}).get(ledger.site)
        if head is None:
            continue
        number, _, last = str(head).partition(" ")
        line = int(number) if number.isdigit() else 0
        if not 1 <= line <= len(ledger.lines) or ledger.lines[line - 1].hash != last:
            raise _unlike(
                ledger.site,
                f"in round {happened.get('round')} of the journal, the ledger had {number} lines and "
                "another last line than now",
            )
        count += 1
    return count


def _digest(question: Question) -> str:
    return hashlib.sha256(encode(question)).hexdigest()


def _reply(content: bytes, site: str) -> Reply:
    try:
        found = decode(content)
    except MessageError:
        found = None
    if not isinstance(found, Reply):
        raise _unlike(site, "a kept reply that is no reply of this version")
    return found


def _unlike(site: str, found: str) -> ResultsError:
    return ResultsError(
        "the ledger must hold the questions and replies of the results, and no others",
        found=f"site '{site}': {found}",
        remedy="ask coordinator and custodian to explain it; audit with the version that ran the study",
    )
