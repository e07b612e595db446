"""The lines of a ledger and the chain that they form: each line's hash covers the one before it."""

from __future__ import annotations

import fcntl
import hmac
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from unpooled.errors import ResultsError
from unpooled.site.ledger_files import (
    START,
    Head,
    canonical,
    exists,
    keyed,
    read_head,
    read_key,
    read_reply,
    unreadable,
    untrue,
)


class Entry(BaseModel):
    """One line of the ledger: a reply that left the site."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    number: int
    time: str
    study: str
    round: int
    question: str
    asked: str
    """SHA-256 of the encoded question as the site received it."""
    stages: tuple[str, ...]
    batch: int
    """Number of θ in the question."""
    largest: float | None
    """Largest absolute finite number among the question's parameters and cotangents."""
    kind: str
    people: int | None
    """Smallest number of effective people behind the reply, where it is known."""
    reveals: str
    shapes: tuple[str, ...]
    bytes: int
    digest: str
    """SHA-256 of the encoded reply."""
    previous: str
    hash: str = ""

    @property
    def line(self) -> str:
        return canonical(self.model_dump(mode="json"))

    @property
    def refused(self) -> bool:
        return self.kind == "Refusal"

    def chained(self, key: bytes) -> Entry:
        return self.model_copy(update={"hash": keyed(key, self.model_dump(mode="json", exclude={"hash"}))})


class Verified(NamedTuple):
    """The number of verified lines, and when the first and the last were written."""

    lines: int
    first: str | None
    last: str | None


def entries(path: Path) -> list[Entry]:
    """All lines without verification; an incomplete last line, left by a crash, is skipped."""
    *lines, _ = _read(path)[0].split(b"\n")
    found = [_parsed(line) for line in lines]
    if None in found:
        raise broken(found.index(None) + 1, "altered")
    return [entry for entry in found if entry is not None]


def verify(path: Path) -> Verified:
    """Verify that nothing was altered, removed or added; otherwise an error names the first such line."""
    found = verified_entries(path)
    return Verified(len(found), found[0].time if found else None, found[-1].time if found else None)


def verified_entries(path: Path) -> list[Entry]:
    """All lines, after verifying them and the replies that are kept beside them."""
    found = checked(*_read(path))
    for entry in found:
        read_reply(path, entry.number, entry.digest)
    return found


def open_reply(path: Path, number: int) -> tuple[Entry, bytes]:
    """One line and the bytes of its reply, after verifying all lines and this reply."""
    found = checked(*_read(path))
    if not 1 <= number <= len(found):
        raise ResultsError(
            "the ledger must have this line",
            found=f"line {number} of {len(found)}",
            remedy="list the lines with: unpooled site ledger",
        )
    return found[number - 1], read_reply(path, number, found[number - 1].digest)


def checked(content: bytes, head: Head, key: bytes) -> list[Entry]:
    """The entries of a whole ledger; raises for the first line that is not as it was written."""
    *lines, cut = content.split(b"\n")
    found: list[Entry] = []
    for number, text in enumerate(lines, start=1):
        entry = whole(text, key)
        if entry is None:
            raise broken(number, "altered")
        if entry.number != number:
            raise broken(number, "removed or moved" if entry.number > number else "added")
        if entry.previous != (found[-1].hash if found else START):
            raise broken(max(number - 1, 1), "altered")
        found.append(entry)
    if len(found) < head.lines:
        raise broken(len(found) + 1, "cut short" if cut else "removed")
    if head.lines and found[head.lines - 1].hash != head.hash:
        raise broken(head.lines, "altered")
    if [entry.hash for entry in found[head.lines :]] not in ([], [head.coming]):
        raise broken(head.lines + 1, "added")
    return found


def whole(text: bytes, key: bytes) -> Entry | None:
    """The entry of an unaltered line, otherwise None."""
    entry = _parsed(text)
    if entry is None or entry.line.encode() != text:
        return None
    return entry if hmac.compare_digest(entry.hash, entry.chained(key).hash) else None


def broken(line: int, how: str) -> ResultsError:
    return untrue(f"line {line} was {how}")


def _parsed(text: bytes) -> Entry | None:
    try:
        return Entry.model_validate_json(text)
    except ValidationError:
        return None


def _read(path: Path) -> tuple[bytes, Head, bytes]:
    """The ledger and its head, read under a shared lock, and the key."""
    if not exists(path):
        raise untrue(f"no ledger at {path}")
    key = read_key(path)
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            return file.read(), read_head(path, key), key
    except OSError as error:
        raise unreadable(path, error) from None
