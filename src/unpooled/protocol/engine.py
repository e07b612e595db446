"""The interface between the coordinator and an engine, which delivers messages to the sites."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from unpooled.protocol.messages import Question, Reply
from unpooled.study import Study


@dataclass(frozen=True)
class Traffic:
    """Bytes sent to and received from one site in one exchange, and what proves the reply."""

    down: int
    up: int
    digest: str = ""
    """SHA-256 of the encoded reply; empty if the engine does not say."""
    ledger: str = ""
    """Number of lines and last hash of the site's ledger after the reply; empty if it keeps none."""


class Engine(Protocol):
    """Delivers questions to the sites and returns their replies.

    An exchange raises `SiteLost` when a site is unreachable.
    """

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in a fixed order."""
        ...

    def exclude(self, site: str) -> None:
        """Exclude a site from now on; the study restarts with the remaining sites."""
        ...

    def exchange(self, question: Question) -> tuple[dict[str, Reply], dict[str, Traffic]]:
        """Send a question to every site; return replies and traffic by site, in the order of `sites`."""
        ...


@runtime_checkable
class RemoteSites(Protocol):
    """Sites outside this process."""

    def engine(self, study: Study) -> AbstractContextManager[Engine]:
        """Return an engine for this study as a context manager."""
        ...
