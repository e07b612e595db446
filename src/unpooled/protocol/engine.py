"""What the coordinator needs of an engine: names, and a way to put one question to every site."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from unpooled.protocol.messages import Question, Reply
from unpooled.study import Study


@dataclass(frozen=True)
class Traffic:
    """Bytes of one exchange with one site."""

    down: int
    up: int


class Engine(Protocol):
    """How messages travel. An exchange raises `SiteLost` when a site is unreachable."""

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites' names, in a fixed order."""
        ...

    def go_on_without(self, site: str) -> None:
        """Ask the others from now on, from the beginning."""
        ...

    def exchange(self, question: Question) -> tuple[dict[str, Reply], dict[str, Traffic]]:
        """Put the question to every site; replies and bytes by site, in the order of `sites`."""
        ...


@runtime_checkable
class RemoteSites(Protocol):
    """Sites that are not in this process, and how they are reached."""

    def engine(self, study: Study) -> AbstractContextManager[Engine]:
        """A way to them for this study, closed at the end of a `with`."""
        ...
