"""The exchange of keys for masks, and masked numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unpooled.protocol.fixed_point import Scale
from unpooled.protocol.messages import Message, Question, Reply
from unpooled.study import Study


@dataclass(frozen=True)
class Introduction(Reply):
    """Reveals: public keys of this site."""

    reveals: ClassVar[str] = "public keys of this site, by which sites agree on masks that cancel in sums"
    key: bytes
    """A new X25519 key for this run."""
    identity: bytes
    """The site's Ed25519 key."""
    signature: bytes


@dataclass(frozen=True)
class Met(Reply):
    """Reveals: whether two sites have the same table, whether it has changed, and nothing else about it."""

    reveals: ClassVar[str] = (
        "whether the table has changed or another site has the same; nothing else about it"
    )
    tags: dict[str, bytes]
    """By other site: a tag of the own table that only these two sites can compute."""
    mark: bytes
    """A tag of the own table that only this site can compute, the same in every run."""


@dataclass(frozen=True)
class Masked(Reply):
    """Reveals: nothing but the sum over all sites of the masked numbers, and all that `plain` reveals."""

    reveals: ClassVar[str] = "masked numbers, of which only the sum over all sites can be known"
    words: np.ndarray
    """The numbers in fixed point, plus masks that cancel in the sum over all sites, [words, numbers]."""
    scale: Scale
    plain: Message
    """The reply with gaps in place of the masked arrays."""
    finite: np.ndarray
    """For each masked array, and each entry of its first axis, whether its numbers are finite."""


@dataclass(frozen=True)
class TooLarge(Reply):
    """Reveals: that a number is too large for the scale that was asked for."""

    reveals: ClassVar[str] = "that a number is too large for the scale on which numbers are masked"


@dataclass(frozen=True)
class Introduce(Question):
    """Make a key for a run with these sites."""

    reply: ClassVar[type[Reply]] = Introduction
    sites: tuple[str, ...]

    def mismatch(self, study: Study) -> str | None:
        return None  # what the site does with it reveals nothing


@dataclass(frozen=True)
class Meet(Question):
    """The keys of all sites of a run."""

    reply: ClassVar[type[Reply]] = Met
    introductions: dict[str, Introduction]

    def mismatch(self, study: Study) -> str | None:
        return None  # the site checks the signatures


KEY_EXCHANGE = (Introduce.words, Meet.words)
"""Questions by which sites exchange keys. They belong to the connection, not to the study."""
