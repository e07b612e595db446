"""What the coordinator needs of an engine: the sites' names, and an exchange with all of them."""

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
        """Leave a site out from now on; the study starts again with the others."""
        ...

    def exchange(self, question: Question) -> tuple[dict[str, Reply], dict[str, Traffic]]:
        """Ask every site; return replies and bytes by site, in the order of `sites`."""
        ...


@runtime_checkable
class RemoteSites(Protocol):
    """Sites that are not in this process."""

    def engine(self, study: Study) -> AbstractContextManager[Engine]:
        """An engine for this study, to be used in a `with` block."""
        ...
