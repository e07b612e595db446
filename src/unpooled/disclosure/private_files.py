"""Files that only their owner can read: in a site's folder, a results folder or a saved model."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

OWN_FILE, OWN_FOLDER = 0o600, 0o700


def own(path: str | Path, flags: int) -> int:
    """An opener for `open`: a file that is created can be read by its owner only."""
    return os.open(path, flags, OWN_FILE)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically; it is on disk when this returns."""
    temporary = path.with_name(path.name + ".new")
    try:
        with open(temporary, "wb", opener=own) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def make_own_folder(folder: Path) -> None:
    """Make a folder, unless it exists, and let only its owner enter it."""
    folder.mkdir(mode=OWN_FOLDER, parents=True, exist_ok=True)
    folder.chmod(OWN_FOLDER)


def restrict(folder: Path) -> None:
    """Close a folder and everything of ours in it to other users; links are left as they are."""
    for one in (folder, *folder.rglob("*")):
        if not one.is_symlink():
            with suppress(PermissionError):  # somebody else's, who decides about it
                one.chmod(OWN_FOLDER if one.is_dir() else OWN_FILE)
