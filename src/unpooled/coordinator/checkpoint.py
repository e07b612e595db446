"""A study that stopped goes on: the aggregated reply of every round is kept, and the procedure replayed.

The coordinator is a deterministic function of the replies, so replaying them brings back every
optimiser's state exactly; no state has to be serialised.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgpack

from unpooled.errors import ResultsError
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.messages import Message, Statistics, Tree


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

    def recall(self, question: Message) -> Tree | None:
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
        message = decode(reply)
        assert isinstance(message, Statistics)
        return message.total

    def append(self, question: Message, reply: Tree) -> None:
        """Record one round; on disk before the next question is put."""
        record = (_digest(question), _bytes(reply))
        self._stored.append(record)
        self._next += 1
        with self._path.open("ab") as file:
            file.write(_packed(record))
            file.flush()


def require_same(before: Tree, now: Tree) -> None:
    """Refuse to go on where a site describes another table than when the study began."""
    changed = [site for site in now if _bytes(before.get(site)) != _bytes(now[site])]
    if changed:
        raise ResultsError(
            "a resumed study must meet the tables it began with",
            found=f"another table at: {', '.join(changed)}",
            remedy="bring the old tables back, or start a new results folder",
        )


def _bytes(reply: Tree) -> bytes:
    return encode(Statistics(total=reply))


def _digest(question: Message) -> bytes:
    return hashlib.sha256(encode(question)).digest()


def _read(path: Path) -> list[tuple[bytes, bytes]]:
    """Every whole record; a last one cut short by a crash is dropped."""
    with path.open("rb") as file:
        unpacker = msgpack.Unpacker(file, max_buffer_size=2**31 - 1)
        records = []
        try:
            for digest, reply in unpacker:
                records.append((digest, reply))
        except (ValueError, msgpack.UnpackException):
            pass
    return records


def _packed(record: tuple[bytes, bytes]) -> bytes:
    return bytes(msgpack.packb(record) or b"")


def _write(path: Path, records: list[tuple[bytes, bytes]]) -> None:
    """Whole records only, and never less than before: written beside the old file, then put in its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    with beside.open("wb") as file:
        for record in records:
            file.write(_packed(record))
    beside.replace(path)
