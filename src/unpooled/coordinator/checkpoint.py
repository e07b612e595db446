"""A study that stopped goes on: the aggregated reply of every round is kept, and the procedure replayed.

The coordinator is a deterministic function of the replies, so replaying them brings back every
optimiser's state exactly; no state has to be serialised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgpack

from unpooled.errors import MessageError, ResultsError
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.messages import Message, Question, Replies, Reply, SiteReplies


class Checkpoint:
    """An append-only file of (digest of the question, aggregated reply)."""

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self._path = path
        self._stored: list[tuple[bytes, bytes]] = _read(path) if resume and path.exists() else []
        self._next = 0
        _write(path, self._stored)

    @property
    def rounds(self) -> int:
        """How many rounds are on record."""
        return len(self._stored)

    def recall(self, question: Question) -> Message | None:
        """The stored reply to this question, or None past the end of the record."""
        if self._next >= len(self._stored):
            return None
        digest, reply = self._stored[self._next]
        if digest != _digest(question):
            raise ResultsError(
                "a resumed study must ask what it asked before",
                found=f"another question in round {self._next + 1} of {self._path.name}",
                remedy="resume with the same study, settings and version, or start a new results folder",
            )
        self._next += 1
        return _decoded(reply, self._path)

    def append(self, question: Question, reply: Message) -> None:
        """Record one round; on disk before the next question is put."""
        record = (_digest(question), encode(reply))
        self._stored.append(record)
        self._next += 1
        with writing(self._path.parent), self._path.open("ab") as file:
            file.write(_packed(record))
            file.flush()


def require_same(stored: Message, found: Message) -> None:
    """Refuse to go on where a site left, came, or describes another table than when the study began."""
    assert isinstance(stored, SiteReplies) and isinstance(found, SiteReplies)
    before, now = stored.replies, found.replies
    parts = {
        "another table at": [
            site for site in now if site in before and encode(before[site]) != encode(now[site])
        ],
        "no longer in the study": [site for site in before if site not in now],
        "new in the study": [site for site in now if site not in before],
    }
    changes = [f"{what}: {', '.join(sites)}" for what, sites in parts.items() if sites]
    if changes:
        raise ResultsError(
            "a resumed study must meet the tables it began with",
            found="; ".join(changes),
            remedy="bring the old sites and tables back, or start a new results folder",
        )


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """A disk that is full or may not be written is the user's to mend, and no defect of this program."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ResultsError(
            "the results folder must be one that can be written",
            found=f"{folder} cannot be written ({reason})",
            remedy="make room there, or get the right to write there, or choose another folder",
        ) from None


def _digest(question: Question) -> bytes:
    return hashlib.sha256(encode(question)).digest()


def _decoded(reply: bytes, path: Path) -> Message:
    try:
        found = decode(reply)
    except MessageError:  # its advice is for parties that talk to each other, not for a file
        raise _damaged(path) from None
    if isinstance(found, Replies | SiteReplies) or (isinstance(found, Reply) and found.added):
        return found
    raise _damaged(path)


def _read(path: Path) -> list[tuple[bytes, bytes]]:
    """Every whole record; a last one cut short by a crash is dropped: the unpacker stops before it."""
    try:
        with path.open("rb") as file:
            records = list(msgpack.Unpacker(file, max_buffer_size=2**31 - 1))
    except (ValueError, TypeError, OSError, msgpack.UnpackException):
        raise _damaged(path) from None
    if not all(_is_record(record) for record in records):
        raise _damaged(path)
    return [(digest, reply) for digest, reply in records]


def _is_record(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, bytes) for part in value)


def _damaged(path: Path) -> ResultsError:
    return ResultsError(
        "a study can only go on from a whole checkpoint",
        found=f"a checkpoint that is damaged or cannot be read: {path}",
        remedy="bring an undamaged copy of the file back, or run the study anew in another folder",
    )


def _packed(record: tuple[bytes, bytes]) -> bytes:
    return bytes(msgpack.packb(record) or b"")


def _write(path: Path, records: list[tuple[bytes, bytes]]) -> None:
    """Whole records only, and never less than before: written beside the old file, then put in its place."""
    beside = path.with_suffix(".new")
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            for record in records:
                file.write(_packed(record))
        beside.replace(path)
