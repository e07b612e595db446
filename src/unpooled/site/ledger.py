"""The site's record of what left it: one line per reply, in a hash chain.

Each line's hash covers the previous hash, and a separate head file stores the number of lines and the last
hash, so that altered, removed, moved or added lines are detected. Someone with write access to the folder
could rewrite both files; occasional copies of the head kept elsewhere detect that too.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from unpooled.disclosure.reveals import revealed, shapes
from unpooled.errors import ResultsError
from unpooled.protocol.messages import Message
from unpooled.protocol.stage import Stage
from unpooled.site.private_files import OWN_FILE, keeping, write_whole

START = "0" * 64
"""The previous hash of the first line."""
LONGEST = 500
"""Longest name of a question: it comes from outside and must not fill the disk."""


class Entry(BaseModel):
    """One line of the ledger: a reply that left the site."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    number: int
    time: str
    study: str
    round: int
    question: str
    kind: str
    reveals: str
    shapes: tuple[str, ...]
    bytes: int
    digest: str
    previous: str
    hash: str = ""

    @property
    def line(self) -> str:
        return _canonical(self.model_dump(mode="json"))

    @property
    def proper_hash(self) -> str:
        return hashlib.sha256(_canonical(self.model_dump(mode="json", exclude={"hash"})).encode()).hexdigest()


class Head(BaseModel):
    """The number of lines in the ledger, and the hash and end of the last one."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    lines: int = 0
    hash: str = START
    end: int = 0
    """Where the last line ends, in bytes."""
    coming: str = ""
    """Hash of the line being written, so that a line completed just before a crash is accepted."""

    def after(self, entry: Entry) -> Head:
        return Head(lines=entry.number, hash=entry.hash, end=self.end + len(entry.line) + 1)


class Verified(NamedTuple):
    """The number of verified lines, and when the first and the last were written."""

    lines: int
    first: str | None
    last: str | None


class Ledger:
    """Writes the ledger; several may be open at once, and a lock lets one of them write at a time."""

    def __init__(self, path: Path) -> None:
        self._path = Path(path)
        with self._alone() as file:
            _settled(file, self._path)

    def record(
        self,
        study: str,
        round: int,
        question: str,
        reply: Message,
        encoded: bytes,
        *,
        stages: Mapping[str, Stage] | None = None,
    ) -> Entry:
        """Record one reply. The reply may leave only after this has returned."""
        with self._alone() as file:
            head = _settled(file, self._path)
            entry = Entry(
                number=head.lines + 1,
                time=datetime.now(UTC).isoformat(timespec="seconds"),
                study=study,
                round=round,
                question=question[:LONGEST],
                kind=type(reply).__name__,
                reveals=revealed(question, reply, stages or {}),
                shapes=shapes(reply),
                bytes=len(encoded),
                digest=hashlib.sha256(encoded).hexdigest(),
                previous=head.hash,
            )
            entry = entry.model_copy(update={"hash": entry.proper_hash})
            _append(file, self._path, head, entry)
        return entry

    @contextmanager
    def _alone(self) -> Iterator[FileIO]:
        with (
            keeping(self._path),
            FileIO(os.open(self._path, os.O_RDWR | os.O_CREAT, OWN_FILE), "r+") as file,
        ):
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file


def entries(path: Path) -> list[Entry]:
    """All lines without verification; an incomplete last line, left by a crash, is skipped."""
    *lines, _ = _read(path)[0].split(b"\n")
    found = [_parsed(line) for line in lines]
    if None in found:
        raise _broken(found.index(None) + 1, "altered")
    return [entry for entry in found if entry is not None]


def verify(path: Path) -> Verified:
    """Verify that nothing was altered, removed or added; otherwise an error names the first such line."""
    found = _checked(*_read(path))
    return Verified(len(found), found[0].time if found else None, found[-1].time if found else None)


def _append(file: FileIO, path: Path, head: Head, entry: Entry) -> None:
    """Write the line and then the new head; if either fails, the ledger is unchanged."""
    _write_head(path, head.model_copy(update={"coming": entry.hash}))
    line = f"{entry.line}\n".encode()
    try:
        file.seek(head.end)
        if file.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(file.fileno())
        _write_head(path, head.after(entry))
    except (OSError, ResultsError):
        with suppress(OSError):
            file.truncate(head.end)
        raise


def _settled(file: FileIO, path: Path) -> Head:
    """The head, after repairing what a crash left: an incomplete line is dropped, a complete one accepted."""
    head = _head(path)
    file.seek(0, os.SEEK_END)
    size = file.tell()
    if size == head.end:
        return head
    file.seek(min(head.end, size))
    tail = file.readall()
    if size > head.end and b"\n" not in tail:
        file.truncate(head.end)
        return head
    last = _whole(tail.removesuffix(b"\n"))
    if last is not None and last.hash == head.coming:
        head = head.after(last)
        _write_head(path, head)
        return head
    file.seek(0)
    _checked(file.readall(), head)
    raise _headless(path)


def _checked(content: bytes, head: Head) -> list[Entry]:
    *lines, cut = content.split(b"\n")
    found: list[Entry] = []
    for number, text in enumerate(lines, start=1):
        entry = _whole(text)
        if entry is None:
            raise _broken(number, "altered")
        if entry.number != number:
            raise _broken(number, "removed or moved" if entry.number > number else "added")
        if entry.previous != (found[-1].hash if found else START):
            raise _broken(max(number - 1, 1), "altered")
        found.append(entry)
    if len(found) < head.lines:
        raise _broken(len(found) + 1, "cut short" if cut else "removed")
    if head.lines and found[head.lines - 1].hash != head.hash:
        raise _broken(head.lines, "altered")
    if [entry.hash for entry in found[head.lines :]] not in ([], [head.coming]):
        raise _broken(head.lines + 1, "added")
    return found


def _whole(text: bytes) -> Entry | None:
    """The entry of an unaltered line, otherwise None."""
    entry = _parsed(text)
    untouched = entry is not None and entry.hash == entry.proper_hash and entry.line.encode() == text
    return entry if untouched else None


def _parsed(text: bytes) -> Entry | None:
    try:
        return Entry.model_validate_json(text)
    except ValidationError:
        return None


def _read(path: Path) -> tuple[bytes, Head]:
    """The ledger and its head, read under a shared lock."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            return file.read(), _head(path)
    except FileNotFoundError:
        return b"", _head(path)
    except OSError as error:
        raise ResultsError(
            "the ledger must be readable",
            found=f"{path} cannot be read ({error.strerror or type(error).__name__})",
            remedy="obtain read permission",
        ) from None


def _head(path: Path) -> Head:
    head = path.with_suffix(".head")
    try:
        return Head.model_validate_json(head.read_bytes())
    except FileNotFoundError:
        if not path.exists() or path.stat().st_size == 0:
            return Head()
    except (OSError, ValidationError):
        pass
    raise _headless(path)


def _write_head(path: Path, head: Head) -> None:
    write_whole(path.with_suffix(".head"), _canonical(head.model_dump(mode="json")) + "\n")


def _canonical(values: dict[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def _broken(line: int, how: str) -> ResultsError:
    return _untrue(f"line {line} was {how}")


def _headless(path: Path) -> ResultsError:
    return _untrue(f"{path.with_suffix('.head').name} was altered or removed")


def _untrue(found: str) -> ResultsError:
    return ResultsError(
        "the ledger must be unaltered",
        found=found,
        remedy="find out who changed files in the site's folder, and restore an unaltered copy",
    )
