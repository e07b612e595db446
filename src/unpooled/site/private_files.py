"""Writing files in a site's folder with permissions for its custodian only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unpooled.errors import ResultsError

OWN_FILE, OWN_FOLDER = 0o600, 0o700


@contextmanager
def keeping(path: Path) -> Iterator[None]:
    """Turn a write error, such as a full disk, into an error with a remedy for the custodian."""
    try:
        yield
    except OSError as error:
        raise ResultsError(
            "the site's folder must be writable",
            found=f"{path} cannot be written ({error.strerror or type(error).__name__})",
            remedy="free disk space or obtain write permission, and try again",
        ) from None


def write_whole(path: Path, text: str) -> None:
    """Replace a file atomically."""
    temporary = path.with_name(path.name + ".new")
    with keeping(path):
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWN_FILE), "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise


def append(path: Path, text: str) -> None:
    """Add text to the end of a log."""
    with keeping(path), open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, OWN_FILE), "ab") as file:
        file.write(text.encode())
