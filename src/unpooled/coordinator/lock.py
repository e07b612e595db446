"""A lock that a run holds on its folder, so that two runs never write the same files.

The operating system releases the lock when the process ends, however it ends. A file that a crash left behind
is therefore no lock.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO

from unpooled.coordinator.checkpoint import writing
from unpooled.disclosure.private_files import OWN_FOLDER, own
from unpooled.errors import ResultsError

NAME = "run.lock"
_held: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())
"""The locks that this run holds already: a run may ask for its own lock again."""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock of this folder; raises if another run holds it. Its file is removed at the end."""
    path = folder.absolute() / NAME
    if path in _held.get():
        yield
        return
    with _locked(path):
        before = _held.set(_held.get() | {path})
        try:
            yield
        finally:
            _held.reset(before)
            path.unlink(missing_ok=True)  # while it is held: nobody can take a lock that is about to vanish


def _locked(path: Path) -> IO[bytes]:
    while True:
        with writing(path.parent):
            path.parent.mkdir(mode=OWN_FOLDER, parents=True, exist_ok=True)
            file = open(path, "ab", opener=own)  # noqa: SIM115 (the caller closes it)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file, path):
                return file
        except BlockingIOError:
            file.close()
            raise ResultsError(
                "a results folder is used by one run at a time",
                found=f"another run in {path.parent}",
                remedy="wait until it has finished, stop it, or choose another folder",
            ) from None
        except BaseException:
            file.close()
            raise
        file.close()  # the run that held it has just removed it: try again with a new file


def _is_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
