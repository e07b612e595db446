"""The files of a ledger, which are made together: the lines, their head, the key and the replies.

The key makes the chain of lines. Whoever cannot read it can neither write a line nor a head that verifies.
Each file bears witness to the others: a ledger of which a part is missing is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from unpooled.disclosure.private_files import make_own_folder, own
from unpooled.errors import ResultsError
from unpooled.site.private_files import keeping, write_whole

APPROVALS = "approvals.json"
"""The custodian's decisions beside the ledger. Nothing is decided before there is a ledger."""
START = "0" * 64
"""The previous hash of the first line."""
KEY_BYTES = 32


class Head(BaseModel):
    """The number of lines in the ledger, and the hash and end of the last one."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    lines: int = 0
    hash: str = START
    end: int = 0
    """Where the last line ends, in bytes."""
    coming: str = ""
    """Hash of the line being written, so that a line completed just before a crash is accepted."""
    seal: str = ""
    """Keyed hash of the other fields, so that nobody can shorten the ledger."""

    def sealed(self, key: bytes) -> Head:
        return self.model_copy(update={"seal": keyed(key, self.model_dump(mode="json", exclude={"seal"}))})

    def __str__(self) -> str:
        return f"{self.lines} {self.hash}" if self.lines else ""


def head_path(path: Path) -> Path:
    return path.with_suffix(".head")


def key_path(path: Path) -> Path:
    return path.with_suffix(".key")


def replies_folder(path: Path) -> Path:
    return path.parent / "replies"


def exists(path: Path) -> bool:
    """Whether there is a ledger; raises if a part of it is missing, or if all of it is but was there."""
    parts = (path, head_path(path), key_path(path), replies_folder(path))
    missing = [part.name for part in parts if not part.exists()]
    if not missing:
        return True
    if len(missing) == len(parts) and not (path.parent / APPROVALS).exists():
        return False
    raise untrue(f"removed from {path.parent}: {', '.join(missing)}")


def create(path: Path) -> None:
    """Make an empty ledger with a new key."""
    with keeping(path):
        key = secrets.token_bytes(KEY_BYTES)
        for part, content in ((path, b""), (key_path(path), key)):
            with open(part, "xb", opener=own) as file:
                file.write(content)
        make_own_folder(replies_folder(path))
    write_head(path, Head(), key)


def read_key(path: Path) -> bytes:
    try:
        key = key_path(path).read_bytes()
    except OSError as error:
        raise unreadable(key_path(path), error) from None
    if len(key) != KEY_BYTES:
        raise untrue(f"{key_path(path).name} was altered")
    return key


def read_head(path: Path, key: bytes) -> Head:
    try:
        head = Head.model_validate_json(head_path(path).read_bytes())
    except (OSError, ValidationError):
        raise headless(path) from None
    if not hmac.compare_digest(head.seal, head.sealed(key).seal):
        raise headless(path)
    return head


def write_head(path: Path, head: Head, key: bytes) -> None:
    write_whole(head_path(path), canonical(head.sealed(key).model_dump(mode="json")) + "\n")


def reply_path(path: Path, number: int) -> Path:
    return replies_folder(path) / f"{number:06d}.msgpack"


def read_reply(path: Path, number: int, digest: str) -> bytes:
    """The bytes of the reply on this line, after checking that they are those that left."""
    try:
        content = reply_path(path, number).read_bytes()
    except OSError:
        raise untrue(f"the reply of line {number} was removed or cannot be read") from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise untrue(f"the reply of line {number} was altered")
    return content


def canonical(values: dict[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def keyed(key: bytes, values: dict[str, Any]) -> str:
    return hmac.new(key, canonical(values).encode(), hashlib.sha256).hexdigest()


def headless(path: Path) -> ResultsError:
    return untrue(f"{head_path(path).name} was altered or removed")


def untrue(found: str) -> ResultsError:
    return ResultsError(
        "the ledger must be whole and unaltered",
        found=found,
        remedy="find out who changed files in the site's folder, and restore an unaltered copy",
    )


def unreadable(path: Path, error: OSError) -> ResultsError:
    return ResultsError(
        "the ledger must be readable",
        found=f"{path} cannot be read ({error.strerror or type(error).__name__})",
        remedy="obtain read permission",
    )
