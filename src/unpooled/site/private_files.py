"""Files in a site's own folder: for its custodian only, and written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unpooled.errors import ResultsError

OWN_FILE, OWN_FOLDER = 0o600, 0o700


@contextmanager
def keeping(path: Path) -> Iterator[None]:
    """A disk that is full or may not be written is the custodian's to mend, and no defect of this program."""
    try:
        yield
    except OSError as error:
        raise ResultsError(
            "the site's folder must be one that can be written",
            found=f"{path} cannot be written ({error.strerror or type(error).__name__})",
            remedy="make room there, or get the right to write there, and try again",
        ) from None


def write_whole(path: Path, text: str) -> None:
    """Written beside the old file, then put in its place."""
    beside = path.with_name(path.name + ".new")
    with keeping(path):
        try:
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWN_FILE), "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except OSError:
            with suppress(OSError):
                beside.unlink()
            raise
