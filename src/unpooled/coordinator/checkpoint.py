"""Checkpoints: the aggregated reply of every round is stored, and replayed when a study is resumed.

The coordinator is a deterministic function of the replies, so a replay restores the state of every
optimiser exactly; no optimiser state has to be serialised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgpack

from unpooled.errors import MessageError, ResultsError
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.messages import Message, Question, Replies, Reply, SiteReplies


class Checkpoint:
    """An append-only file of pairs (digest of the question, aggregated reply)."""

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self._path = path
        self._stored: list[tuple[bytes, bytes]] = _read(path) if resume and path.exists() else []
        self._next = 0
        _write(path, self._stored)

    @property
    def rounds(self) -> int:
        """Number of stored rounds."""
        return len(self._stored)

    def recall(self, question: Question) -> Message | None:
        """The stored reply to this question; None after the last stored round."""
        if self._next >= len(self._stored):
            return None
        digest, reply = self._stored[self._next]
        if digest != _digest(question):
            raise ResultsError(
                "a resumed study must ask the same questions as before",
                found=f"another question in round {self._next + 1} of {self._path.name}",
                remedy="resume with the same study, settings and version, or start a new results folder",
            )
        self._next += 1
        return _decoded(reply, self._path)

    def append(self, question: Question, reply: Message) -> None:
        """Store one round; it is on disk before the next question is sent."""
        record = (_digest(question), encode(reply))
        self._stored.append(record)
        self._next += 1
        with writing(self._path.parent), self._path.open("ab") as file:
            file.write(_packed(record))
            file.flush()


def require_same(stored: Message, found: Message) -> None:
    """Refuse to resume if sites were added or removed, or if a site's table has changed."""
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
            "a resumed study must find the same sites and tables as before",
            found="; ".join(changes),
            remedy="restore the earlier sites and tables, or start a new results folder",
        )


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Convert an `OSError`, such as a full disk or a missing permission, into a `ResultsError`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ResultsError(
            "the results folder must be writable",
            found=f"{folder} cannot be written ({reason})",
            remedy="free disk space, obtain write permission, or choose another folder",
        ) from None


def _digest(question: Question) -> bytes:
    return hashlib.sha256(encode(question)).digest()


def _decoded(reply: bytes, path: Path) -> Message:
    try:
        found = decode(reply)
    except MessageError:  # its remedy concerns messages between parties, not a file
        raise _damaged(path) from None
    if isinstance(found, Replies | SiteReplies) or (isinstance(found, Reply) and found.added):
        return found
    raise _damaged(path)


def _read(path: Path) -> list[tuple[bytes, bytes]]:
    """Read every complete record; the unpacker stops before a last record truncated by a crash."""
    try:
        with path.open("rb") as file:
            records = list(msgpack.Unpacker(file, max_buffer_size=2**31 - 1))
    except (ValueError, TypeError, OSError, msgpack.UnpackException):
        raise _damaged(path) from None
    if not all(_is_record(record) for record in records):
        raise _damaged(path)
    return [(digest, reply) for digest, reply in records]


def _is_record(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, bytes) for part in value)


def _damaged(path: Path) -> ResultsError:
    return ResultsError(
        "a study can only be resumed from an undamaged checkpoint",
        found=f"a checkpoint that is damaged or cannot be read: {path}",
        remedy="restore an undamaged copy of the file, or start the study again in another folder",
    )


def _packed(record: tuple[bytes, bytes]) -> bytes:
    return bytes(msgpack.packb(record) or b"")


def _write(path: Path, records: list[tuple[bytes, bytes]]) -> None:
    """Rewrite the file with complete records only, atomically: write a new file, then replace the old."""
    temporary = path.with_suffix(".new")
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            for record in records:
                file.write(_packed(record))
        temporary.replace(path)
