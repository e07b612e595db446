"""The site's record of what left it: one line per reply, in a keyed hash chain, and the replies themselves.

Each line's hash covers the previous hash, and a separate head file stores the number of lines and the last
hash, so that altered, removed, moved or added lines are detected. The hashes are keyed. Someone who can read
the key, which lies in the same folder, could rewrite everything; the coordinator therefore receives the head
with every reply and keeps it with its results.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from unpooled.disclosure.asked import extent
from unpooled.disclosure.reveals import revealed, shapes
from unpooled.errors import ResultsError
from unpooled.protocol.messages import Adopted, Gradient, Message, Question, Replies, Statistics
from unpooled.protocol.stage import Stage
from unpooled.site.ledger_chain import (
    Entry,
    Verified,
    checked,
    entries,
    open_reply,
    verified_entries,
    verify,
    whole,
)
from unpooled.site.ledger_files import (
    Head,
    create,
    exists,
    headless,
    read_head,
    read_key,
    read_reply,
    reply_path,
    untrue,
    write_head,
)
from unpooled.site.private_files import keeping, write_whole

__all__ = ["Entry", "Ledger", "Verified", "entries", "open_reply", "verified_entries", "verify"]

LONGEST = 500
"""Longest name of a question: it comes from outside and must not fill the disk."""
OF_STAGES = tuple(kind.__name__ for kind in (Statistics, Gradient, Replies))
"""Kinds of replies that depend on how a study was adopted."""


class Ledger:
    """Writes the ledger; several may be open at once, and a lock lets one of them write at a time.

    A new ledger is made where there was none. An altered one is refused.
    """

    def __init__(self, path: Path) -> None:
        self._path = Path(path)
        if not exists(self._path):
            create(self._path)
        self._key = read_key(self._path)
        self._answered: dict[tuple[str, str, str], tuple[int, str]] = {}
        """Line and digest of the reply to each question, by study, adoption and question."""
        self._adopted: dict[str, str] = {}
        """The question by which each study was last adopted."""
        with self._alone() as file:
            head = self._repaired(file)
            file.seek(0)
            self._remember(checked(file.read(head.end), head, self._key), head)

    @property
    def key(self) -> bytes:
        """The site's secret key, which also makes the digests of its people."""
        return self._key

    @property
    def head(self) -> str:
        """Number of lines and last hash, such as "42 9f86d0…"; empty if nothing was recorded."""
        return str(self._head)

    def record(
        self,
        study: str,
        round: int,
        question: Question,
        asked: bytes,
        reply: Message,
        encoded: bytes,
        *,
        stages: Mapping[str, Stage] | None = None,
        people: int | None = None,
    ) -> Entry:
        """Record one reply. The reply may leave only after this has returned.

        `asked` and `encoded` are the bytes of question and reply. `stages` are those of the adopted study,
        which say what their statistics reveal, and `people` is the smallest number of effective people
        behind the reply.
        """
        size = extent(question)
        with self._alone() as file:
            head = self._settled(file)
            entry = Entry(
                number=head.lines + 1,
                time=datetime.now(UTC).isoformat(timespec="seconds"),
                study=study,
                round=round,
                question=question.label[:LONGEST],
                asked=hashlib.sha256(asked).hexdigest(),
                stages=size.stages,
                batch=size.batch,
                largest=size.largest,
                kind=type(reply).__name__,
                people=people,
                reveals=revealed(question.label, reply, stages or {}),
                shapes=shapes(reply),
                bytes=len(encoded),
                digest=hashlib.sha256(encoded).hexdigest(),
                previous=head.hash,
            ).chained(self._key)
            kept = reply_path(self._path, entry.number)
            write_whole(kept, encoded)
            try:
                head = self._append(file, head, entry)
            except (OSError, ResultsError):
                with suppress(OSError):
                    kept.unlink()
                raise
            self._remember([entry], head)
        return entry

    def recorded(self, study: str, asked: str) -> bytes | None:
        """The bytes of the reply to a question of this study that was answered before; None if it was not.

        `asked` is the SHA-256 of the encoded question. A refusal is no answer: its reason may be gone.
        """
        with self._alone() as file:
            self._settled(file)
        adopted = self._adopted.get(study, "")
        found = self._answered.get((study, adopted, asked)) or self._answered.get((study, "", asked))
        return None if found is None else read_reply(self._path, *found)

    @contextmanager
    def _alone(self) -> Iterator[FileIO]:
        if not self._path.exists():  # it must not be made again unnoticed
            raise untrue(f"{self._path.name} was removed")
        with keeping(self._path), FileIO(os.open(self._path, os.O_RDWR), "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file

    def _append(self, file: FileIO, head: Head, entry: Entry) -> Head:
        """Write the line and then the new head; if either fails, the ledger is unchanged."""
        write_head(self._path, head.model_copy(update={"coming": entry.hash}), self._key)
        line = f"{entry.line}\n".encode()
        try:
            file.seek(head.end)
            if file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
            after = _after(head, entry)
            write_head(self._path, after, self._key)
            return after
        except (OSError, ResultsError):
            with suppress(OSError):
                file.truncate(head.end)
            raise

    def _settled(self, file: FileIO) -> Head:
        """The head, after repairing what a crash left and reading what others have written meanwhile."""
        head = self._repaired(file)
        if head.end > self._head.end:
            file.seek(self._head.end)
            lines = file.read(head.end - self._head.end).splitlines()
            new = [whole(line, self._key) for line in lines]
            self._remember([entry for entry in new if entry is not None], head)
        return head

    def _repaired(self, file: FileIO) -> Head:
        """An incomplete line is dropped, a complete one accepted."""
        head = read_head(self._path, self._key)
        file.seek(0, os.SEEK_END)
        size = file.tell()
        if size == head.end:
            return head
        file.seek(min(head.end, size))
        tail = file.readall()
        if size > head.end and b"\n" not in tail:
            file.truncate(head.end)
            return head
        last = whole(tail.removesuffix(b"\n"), self._key)
        if last is not None and last.hash == head.coming:
            head = _after(head, last)
            write_head(self._path, head, self._key)
            return head
        file.seek(0)
        checked(file.readall(), head, self._key)
        raise headless(self._path)

    def _remember(self, found: list[Entry], head: Head) -> None:
        self._head = head
        for entry in found:
            if entry.refused:
                continue
            if entry.kind == Adopted.__name__:
                self._adopted[entry.study] = entry.asked
            key = entry.study, self._adoption(entry.study, entry.kind), entry.asked
            self._answered.setdefault(key, (entry.number, entry.digest))

    def _adoption(self, study: str, kind: str) -> str:
        """The adoption that a reply of this kind depends on: after a site is lost, the units are others."""
        return self._adopted.get(study, "") if kind in OF_STAGES else ""


def _after(head: Head, entry: Entry) -> Head:
    return Head(lines=entry.number, hash=entry.hash, end=head.end + len(entry.line) + 1)
