"""Writing files in a site's folder, which only its custodian can read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unpooled.disclosure.private_files import own, replace_file
from unpooled.errors import ResultsError


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


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a file atomically."""
    with keeping(path):
        replace_file(path, content.encode() if isinstance(content, str) else content)


def append(path: Path, text: str) -> None:
    """Add text to the end of a log."""
    with keeping(path), open(path, "ab", opener=own) as file:
        file.write(text.encode())
