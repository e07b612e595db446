"""Checkpoints: every round is stored, and replayed when a study is resumed or audited.

The coordinator is a deterministic function of the replies, so a replay restores the state of every
optimiser exactly; no optimiser state has to be serialised. Of the single sites' replies only digests are
stored, which their ledgers hold too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgpack

from unpooled.disclosure.private_files import OWN_FOLDER, own, replace_file
from unpooled.errors import MessageError, ResultsError
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.messages import Message, Question, Replies, Reply, SiteReplies


class StoredRound(NamedTuple):
    """One record of a checkpoint."""

    question: bytes
    """The encoded question as it was asked of all sites."""
    digests: dict[str, str]
    """SHA-256 of each site's encoded reply, in the order of the sites."""
    reply: bytes
    """The encoded combination of all replies."""
    checksum: bytes
    """SHA-256 of the other fields and the checksum of the record before."""

    def proper_checksum(self, previous: bytes) -> bytes:
        return hashlib.sha256(_packed([previous, *self[:-1]])).digest()


class Checkpoint:
    """An append-only file of `StoredRound`."""

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self._path = path
        self._stored = read_rounds(path) if resume and path.exists() else []
        self._next, self._rounds = 0, len(self._stored)
        self._last = self._stored[-1].checksum if self._stored else b""
        with writing(path.parent):
            path.parent.mkdir(mode=OWN_FOLDER, parents=True, exist_ok=True)
            replace_file(path, b"".join(_packed(list(one)) for one in self._stored))  # complete records only

    @property
    def rounds(self) -> int:
        """Number of stored rounds."""
        return self._rounds

    def recall(self, question: Question) -> Message | None:
        """The stored reply to this question; None after the last stored round."""
        if self._next >= len(self._stored):
            return None
        found = self._stored[self._next]
        if found.question != encode(question):
            raise ResultsError(
                "a resumed study must ask the same questions as before",
                found=f"another question in round {self._next + 1} of {self._path.name}",
                remedy="resume with the same study, settings and version, or start a new results folder",
            )
        self._next += 1
        return stored_reply(found, self._path)

    def append(self, question: Question, reply: Message, digests: Mapping[str, str] | None = None) -> None:
        """Store one round; it is on disk before the next question is sent."""
        record = StoredRound(encode(question), dict(digests or {}), encode(reply), b"")
        record = record._replace(checksum=record.proper_checksum(self._last))
        with writing(self._path.parent), open(self._path, "ab", opener=own) as file:
            file.write(_packed(list(record)))
            file.flush()
        self._last, self._rounds = record.checksum, self._rounds + 1


def read_rounds(path: Path) -> list[StoredRound]:
    """Read every complete record; the unpacker stops before a last record truncated by a crash."""
    try:
        with path.open("rb") as file:
            records = list(msgpack.Unpacker(file, max_buffer_size=2**31 - 1))
    except (ValueError, TypeError, OSError, msgpack.UnpackException):
        raise _damaged(path) from None
    if not all(_is_record(record) for record in records):
        raise _damaged(path)
    found = [StoredRound(*record) for record in records]
    previous = b""
    for number, one in enumerate(found, start=1):
        if one.checksum != one.proper_checksum(previous):
            raise ResultsError(
                "every stored round must be as it was written",
                found=f"round {number} of {path.name} was altered",
                remedy="find out who changed files in the results folder, and restore an unaltered copy",
            )
        previous = one.checksum
    return found


def stored_reply(found: StoredRound, path: Path) -> Message:
    """The decoded reply of a record of this file."""
    try:
        reply = decode(found.reply)
    except MessageError:  # its remedy concerns messages between parties, not a file
        raise _damaged(path) from None
    if isinstance(reply, Replies | SiteReplies) or (isinstance(reply, Reply) and reply.added):
        return reply
    raise _damaged(path)


def earlier(path: Path) -> list[Path]:
    """The checkpoints that were set aside, oldest first."""
    found: list[Path] = []
    while (one := path.with_stem(f"{path.stem}-{len(found) + 1}")).exists():
        found.append(one)
    return found


def set_aside(path: Path) -> None:
    """Keep the rounds of a study that starts again without a site: its other sites have answered them."""
    with writing(path.parent):
        path.rename(path.with_stem(f"{path.stem}-{len(earlier(path)) + 1}"))


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


def _is_record(value: object) -> bool:
    if not isinstance(value, list) or [type(part) for part in value] != [bytes, dict, bytes, bytes]:
        return False
    return all(isinstance(text, str) for item in value[1].items() for text in item)


def _damaged(path: Path) -> ResultsError:
    return ResultsError(
        "a study can only be resumed from an undamaged checkpoint",
        found=f"a checkpoint that is damaged or cannot be read: {path}",
        remedy="restore an undamaged copy of the file, or start the study again in another folder",
    )


def _packed(parts: list[object]) -> bytes:
    return bytes(msgpack.packb(parts) or b"")
