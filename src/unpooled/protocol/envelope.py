"""Envelopes for messages between organisations: they bind a message to its study, run and round."""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple

import msgpack

from unpooled.errors import MessageError


class Asked(NamedTuple):
    """A question addressed to one site."""

    study: str
    """The study as JSON, without its tables; the site computes the study's hash from it."""
    run: bytes
    """A nonce, so that replies from an earlier run are rejected."""
    round: int
    question: bytes
    scale: bytes = b""
    """The encoded `Scale` on which the reply's numbers are masked; empty if they are not."""

    def seal(self) -> bytes:
        return bytes(msgpack.packb(list(self)) or b"")


class Answered(NamedTuple):
    """A reply to an `Asked` envelope."""

    site: str
    digest: bytes
    """SHA-256 of the sealed question that the reply answers."""
    reply: bytes
    ledger: str
    """Number of lines and last hash of the site's ledger, such as "42 9f86d0…"; empty if there is none."""

    def seal(self) -> bytes:
        return bytes(msgpack.packb(list(self)) or b"")


def open_question(sealed: bytes) -> Asked:
    return Asked(*_open(sealed, (str, bytes, int, bytes, bytes)))


_HEAD = re.compile(r"([1-9]\d{0,17} [0-9a-f]{64})?")


def open_reply(sealed: bytes, asked: bytes, site: str) -> Answered:
    """Open an envelope, after checking that it comes from this site and answers this question."""
    found = Answered(*_open(sealed, (str, bytes, bytes, str)))
    if found.site != site or found.digest != digest(asked):
        raise MessageError(
            "a reply must answer the question that was sent",
            found=f"a reply from another site or to another question, received from '{site}'",
            remedy="check the site's machine: it may have sent an old reply again",
        )
    if not _HEAD.fullmatch(found.ledger):
        raise MessageError(
            "a reply must come with the number of lines and the last hash of the site's ledger",
            found=f"other text, received from '{site}'",
            remedy="run the same version of unpooled at every party",
        )
    return found


def digest(sealed: bytes) -> bytes:
    return hashlib.sha256(sealed).digest()


def _open(sealed: bytes, kinds: tuple[type, ...]) -> list[Any]:
    try:
        parts = msgpack.unpackb(sealed)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        parts = None
    if not isinstance(parts, list) or [type(part) for part in parts] != list(kinds):
        raise MessageError(
            "an envelope must hold one message",
            found="other bytes",
            remedy="run the same version of unpooled at every party",
        )
    return parts
