"""The engine for sites in other processes or on other machines, over any transport that carries bytes.

Each question is sealed in an envelope of its own for every site, and a reply counts only if it answers that
envelope. A site that does not answer, or answers something else, is asked again, and then given up
(`SiteLost`). A site that has restarted is first asked again what prepared it for the study: `Describe`,
`Summarise` and `Adopt`.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, Self

from unpooled.coordinator.aggregate import aggregate
from unpooled.coordinator.checkpoint import require_same
from unpooled.engines.secure_sums import Scales, meet, too_large
from unpooled.errors import EngineError, MessageError, ResultsError, SiteLost
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.engine import Traffic
from unpooled.protocol.envelope import Asked, open_reply
from unpooled.protocol.fixed_point import Scale
from unpooled.protocol.key_messages import Masked
from unpooled.protocol.messages import Question, Reply
from unpooled.study import Study

ATTEMPTS = 2
"""How many times a site may fail to answer one question before it is given up."""

Notify = Callable[[str], None]
"""Receives a line of text about what the engine is waiting for."""


def silent(_: str) -> None:
    """Notify nobody."""


class Unreachable(Exception):
    """One site did not answer. The message is the reason."""


class Disconnected(Exception):
    """The connection to all sites has ended, and the transport cannot name a site as the cause."""


class Transport(Protocol):
    """Carries bytes to sites and their replies back. It does not know what they mean."""

    @property
    def sites(self) -> tuple[str, ...]:
        """The names of all sites that it can reach, in a fixed order."""
        ...

    def connect(self, sites: tuple[str, ...]) -> set[str]:
        """Connect to these sites unless connected, and return those whose process has just started.

        Raises `SiteLost` if a site cannot be connected in time.
        """
        ...

    def send(self, envelopes: Mapping[str, bytes]) -> Mapping[str, bytes | Unreachable]:
        """Send each site its envelope and return each site's reply, or why there is none.

        Raises `Disconnected` if the connection to all sites ends first.
        """
        ...

    def close(self) -> None:
        """Disconnect from all sites; `connect` may be called again."""
        ...


class _Incomplete(Exception):
    """Not all sites have answered."""


Exchanged = dict[str, tuple[Reply, Traffic]]


class RemoteEngine:
    """See `unpooled.protocol.engine.Engine`. Leaving a `with` block closes the transport."""

    def __init__(self, transport: Transport, study: Study, notify: Notify = silent) -> None:
        self._transport, self._notify = transport, notify
        self._sites = transport.sites
        self._study, self._privacy = study.model_dump_json(exclude={"sites"}), study.privacy
        self._run, self._round = secrets.token_bytes(16), 0
        self._preparation: list[tuple[Question, dict[str, Reply]]] = []
        self._unprepared: set[str] = set()
        self._met = False
        self._marks: dict[str, bytes] = {}
        self._scales = self._new_scales()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._transport.close()

    @property
    def sites(self) -> tuple[str, ...]:
        return self._sites

    def exclude(self, site: str) -> None:
        self._notify(f"starting again without {site}")
        self._transport.close()
        self._sites = tuple(name for name in self._sites if name != site)
        self._preparation.clear()
        self._met = False
        self._scales = self._new_scales()

    def exchange(self, question: Question) -> tuple[dict[str, Reply], dict[str, Traffic]]:
        self._round += 1
        answered = self._answers(question)
        replies = {name: answered[name][0] for name in self._sites}
        if question.repeated_on_resume:
            self._preparation.append((question, replies))
        return replies, {name: answered[name][1] for name in self._sites}

    def _answers(self, question: Question) -> Exchanged:
        """Ask until every site has answered."""
        failures: Counter[str] = Counter()
        answered: Exchanged = {}
        wider = False
        for _ in range(ATTEMPTS * len(self._sites) + 1):
            try:
                self._unprepared |= self._transport.connect(self._sites)
                if self._scales is not None and self._unprepared:
                    answered.clear()  # keys will be new, and masks with them
                if self._meet(failures) and self._prepare(failures):
                    missing = [name for name in self._sites if name not in answered]
                    answered |= self._ask(question, missing, failures, self._scale(question, wider=wider))
            except Disconnected:
                self._notify("the connection to the sites has ended; connecting again")
            if len(answered) < len(self._sites):
                continue
            if wider or not too_large({name: reply for name, (reply, _) in answered.items()}):
                return answered
            wider = True
            answered.clear()
        raise EngineError(
            "the connection to the sites must last until a question is answered",
            found=f"it ended {ATTEMPTS * len(self._sites)} times in round {self._round}",
            remedy="read the logs of the coordinator and the sites, then continue with --resume",
        )

    def _meet(self, failures: Counter[str]) -> bool:
        """Let the sites exchange new keys if one of them has none; whether all of them answered."""
        if self._scales is None or (self._met and not self._unprepared):
            return True

        def exchange(question: Question) -> Mapping[str, Reply]:
            answered = self._ask(question, self._sites, failures, None)
            if len(answered) < len(self._sites):
                raise _Incomplete
            return {name: answered[name][0] for name in self._sites}

        try:
            marks = meet(exchange, self._sites)
        except _Incomplete:
            return False
        changed = [name for name, mark in marks.items() if self._marks.get(name, mark) != mark]
        if changed:
            raise ResultsError(
                "a study must find the same tables as before",
                found=f"another table at: {', '.join(changed)}",
                remedy="restore the earlier tables, or start the study again in a new results folder",
            )
        self._marks, self._met = marks, True
        return True

    def _new_scales(self) -> Scales | None:
        """The scales of masked numbers; None if the sites do not mask."""
        count = len(self._sites)
        return Scales(count) if self._privacy.masks(sites=count, remote=True) else None

    def _scale(self, question: Question, *, wider: bool = False) -> Scale | None:
        return None if self._scales is None else self._scales.of(question, wider=wider)

    def _prepare(self, failures: Counter[str]) -> bool:
        """Prepare restarted sites again, with the same tables as before; whether all of them answered."""
        restarted = [name for name in self._sites if name in self._unprepared]
        for question, replies in self._preparation if restarted else ():
            answered = self._ask(question, restarted, failures, self._scale(question))
            if len(answered) < len(restarted):
                return False
            before = {name: replies[name] for name in restarted}
            # Masked replies cannot be compared; the site itself refuses another table.
            if not any(isinstance(reply, Masked) for reply in before.values()):
                require_same(aggregate(before), aggregate({name: answered[name][0] for name in restarted}))
            self._round += 1  # a site answers one question in each round
        self._unprepared.clear()
        return True

    def _ask(
        self, question: Question, sites: Iterable[str], failures: Counter[str], scale: Scale | None
    ) -> Exchanged:
        """The valid replies of these sites; raises `SiteLost` for one that has failed too often."""
        sent = {name: self._seal(question, name, scale) for name in sites}
        if not sent:
            return {}
        answered: Exchanged = {}
        for name, reply in self._transport.send(sent).items():
            try:
                if isinstance(reply, Unreachable):
                    raise reply
                found = open_reply(reply, sent[name], name)
                digest = hashlib.sha256(found.reply).hexdigest()
                traffic = Traffic(len(sent[name]), len(reply), digest, found.ledger)
                answered[name] = (_reply(found.reply), traffic)
            except (Unreachable, MessageError) as error:
                reason = error.found if isinstance(error, MessageError) else str(error)
                failures[name] += 1
                if failures[name] >= ATTEMPTS:
                    raise SiteLost(name, reason) from None
                self._notify(f"asking {name} again: {reason}")
        return answered

    def _seal(self, question: Question, site: str, scale: Scale | None) -> bytes:
        own = question.to_site(self._sites.index(site))
        packed = b"" if scale is None else scale.packed()
        return Asked(self._study, self._run, self._round, encode(own), packed).seal()


def _reply(payload: bytes) -> Reply:
    message = decode(payload)
    if isinstance(message, Reply):
        return message
    raise MessageError(
        "a site must answer with a reply",
        found=type(message).__name__,
        remedy="run one version on every party",
    )
