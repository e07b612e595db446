"""The sites of a consortium as an engine: one job of NVIDIA FLARE carries a whole study.

A job can end for reasons that are not the study's (a process killed at one site ends it for all). Then it is
put again, the sites adopt the study again, and the question that was under way is put again.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Self

from unpooled.engines.nvflare.passage import Ended, Passage
from unpooled.engines.nvflare.session import members
from unpooled.engines.nvflare.wire import Response
from unpooled.errors import EngineError, MessageError, SiteLost
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.engine import Traffic
from unpooled.protocol.envelope import Asked, open_reply
from unpooled.protocol.messages import Adopt, Question, Reply
from unpooled.study import Study

ATTEMPTS = 2
"""How often a site may fail, or a job end, before the question is given up."""

Exchanged = tuple[dict[str, Reply], dict[str, Traffic]]


def _silent(_: str) -> None: ...


class Remote:
    """The sites that have a kit of this coordinator: give it to `fit` in place of tables.

    `seconds` is how long a site may take for one answer, or to come back; `tell` hears what is waited for.
    """

    def __init__(
        self, coordinator: Path | str, seconds: float = 600.0, *, tell: Callable[[str], None] = _silent
    ) -> None:
        self._coordinator, self._seconds, self._tell = Path(coordinator), seconds, tell

    def engine(self, study: Study) -> Flare:
        """To be used in a `with`: the job ends with it."""
        sites = members(self._coordinator)
        return Flare(Passage(self._coordinator, self._seconds, self._tell), study, sites, self._tell)


class Flare:
    """See `unpooled.protocol.engine.Engine`."""

    def __init__(
        self, passage: Passage, study: Study, sites: tuple[str, ...], tell: Callable[[str], None]
    ) -> None:
        self._passage, self._sites, self._tell = passage, sites, tell
        self._study = study.model_dump_json(exclude={"sites"})
        self._run, self._round = secrets.token_bytes(16), 0
        self._adopted: Adopt | None = None
        self._failures: Counter[str] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._passage.leave()

    @property
    def sites(self) -> tuple[str, ...]:
        return self._sites

    def go_on_without(self, site: str) -> None:
        """From now on the other sites are asked, from the beginning."""
        self._tell(f"without {site}, from the beginning")
        self._passage.leave()
        self._sites = tuple(name for name in self._sites if name != site)
        self._adopted = None

    def exchange(self, question: Question) -> Exchanged:
        self._round += 1
        for _ in range(ATTEMPTS * len(self._sites)):
            try:
                if not self._passage.open_to(self._sites) and self._adopted is not None:
                    self._put(self._adopted)
                found = self._put(question)
            except Ended:
                self._tell("the job has ended; putting it again")
                continue
            if isinstance(question, Adopt):
                self._adopted = question
            return found
        raise EngineError(
            "a job must last as long as its study",
            found=f"it ended before round {self._round} was answered, again and again",
            remedy="look at the logs of the sites, then go on with --resume",
        )

    def _put(self, question: Question) -> Exchanged:
        """Until every site has answered as it should."""
        found: dict[str, tuple[Reply, Traffic]] = {}
        while waiting := [name for name in self._sites if name not in found]:
            sent = {name: self._sealed(question, name) for name in waiting}
            response = self._passage.put(sent)
            for name, sealed in response.replies.items():
                try:
                    found[name] = _opened(sealed, sent[name], name)
                except MessageError as error:
                    self._failed(name, error.found)
            self._require_all(waiting, response)
        return {n: found[n][0] for n in self._sites}, {n: found[n][1] for n in self._sites}

    def _require_all(self, waiting: list[str], response: Response) -> None:
        """Where a site's process is stuck or gone, only a new job gives it another."""
        silent = [name for name in waiting if name not in response.replies]
        for name in silent:
            gone = name in response.gone
            self._failed(name, "it has gone" if gone else f"no answer within {self._passage.seconds:g} s")
        if silent:
            self._passage.leave(stuck=True)
            raise Ended

    def _failed(self, site: str, reason: str) -> None:
        self._failures[site] += 1
        if self._failures[site] >= ATTEMPTS:
            raise SiteLost(site, reason)

    def _sealed(self, question: Question, site: str) -> bytes:
        own = question.to_site(self._sites.index(site))
        return Asked(self._study, self._run, self._round, encode(own)).seal()


def _opened(sealed: bytes, asked: bytes, site: str) -> tuple[Reply, Traffic]:
    reply = decode(open_reply(sealed, asked, site))
    if not isinstance(reply, Reply):
        raise MessageError(
            "a site sends replies", found=type(reply).__name__, remedy="run one version on every party"
        )
    return reply, Traffic(len(asked), len(sealed))
