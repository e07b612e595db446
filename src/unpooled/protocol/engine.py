"""What the coordinator needs of an engine: names, and a way to put one question to every site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from unpooled.protocol.messages import Message


@dataclass(frozen=True)
class Traffic:
    """Bytes of one exchange with one site."""

    down: int
    up: int


class Engine(Protocol):
    """How messages travel."""

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites' names, in a fixed order."""
        ...

    def exchange(self, question: Message) -> tuple[dict[str, Message], dict[str, Traffic]]:
        """Put the question to every site; replies and bytes by site, in the order of `sites`."""
        ...
