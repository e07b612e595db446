"""What a message travels in between organisations: of which study it is, and what a reply answers."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import msgpack

from unpooled.errors import MessageError


class Asked(NamedTuple):
    """A question on its way to one site. `run` is a number used once, so that no old reply fits a new run."""

    study: str
    """The study as JSON, without its tables: the site itself computes the hash of what it is asked for."""
    run: bytes
    round: int
    question: bytes

    def seal(self) -> bytes:
        return bytes(msgpack.packb(list(self)) or b"")


class Answered(NamedTuple):
    """A reply on its way back."""

    site: str
    digest: bytes
    """Of the envelope that is answered."""
    reply: bytes

    def seal(self) -> bytes:
        return bytes(msgpack.packb(list(self)) or b"")


def open_question(sealed: bytes) -> Asked:
    return Asked(*_open(sealed, (str, bytes, int, bytes)))


def open_reply(sealed: bytes, asked: bytes, site: str) -> bytes:
    """The reply inside, if it is this site's and answers this very question."""
    found = Answered(*_open(sealed, (str, bytes, bytes)))
    if found.site != site or found.digest != digest(asked):
        raise MessageError(
            "a reply must answer the question that was put",
            found=f"a reply of another site or to another question, from '{site}'",
            remedy="look at the site's machine: an old reply was sent again",
        )
    return found.reply


def digest(sealed: bytes) -> bytes:
    return hashlib.sha256(sealed).digest()


def _open(sealed: bytes, kinds: tuple[type, ...]) -> list[Any]:
    try:
        parts = msgpack.unpackb(sealed)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        parts = None
    if not isinstance(parts, list) or [type(part) for part in parts] != list(kinds):
        raise MessageError(
            "an envelope must hold one message", found="other bytes", remedy="run one version on every party"
        )
    return parts
