"""Batches of a site's rows in a private temporary file, which is read anew for every question.

The file has no name on Linux and macOS, so that nobody else can open it and nothing is left of it when the
study or the process ends. It is read, not mapped: pages of a mapped file count as memory of the process.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

import jax
import numpy as np

from unpooled.errors import DataError
from unpooled.protocol.rows import Rows


@dataclass
class Spool:
    """Rows of equal shapes, written by `append` and read by `batches`."""

    file: IO[bytes] = field(default_factory=tempfile.TemporaryFile, repr=False)
    count: int = 0
    shapes: Rows | None = None
    """A batch with shapes and types in place of arrays."""
    left_out: tuple[int, ...] = ()
    """Covariates that are constant in all batches, because limits leave them out in one of them."""

    def __post_init__(self) -> None:
        weakref.finalize(self, self.file.close)

    @property
    def length(self) -> int:
        """Padded rows of a batch."""
        assert self.shapes is not None
        return len(self.shapes.present)


def append(spool: Spool, rows: Rows) -> None:
    """Write a batch behind those before."""
    leaves = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(rows)]
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), rows)
    assert spool.shapes is None or spool.shapes == shapes
    try:
        for leaf in leaves:
            spool.file.write(leaf.data)
    except OSError as error:
        raise DataError(
            "a large table needs as much space for temporary files as it has numbers",
            found=f"a file that cannot be written ({error.strerror or type(error).__name__})",
            remedy="free disk space, or name another folder in the environment variable TMPDIR",
        ) from None
    spool.count, spool.shapes = spool.count + 1, shapes


def batches(spool: Spool) -> Iterator[Rows]:
    """All batches, one at a time."""
    spool.file.seek(0)
    for _ in range(spool.count):
        rows: Rows = jax.tree.map(lambda leaf: _read(spool.file, leaf), spool.shapes)
        if spool.left_out:
            np.asarray(rows.covariates)[:, list(spool.left_out)] = 0.0
        yield rows


def _read(file: IO[bytes], shape: jax.ShapeDtypeStruct) -> np.ndarray:
    found = np.empty(shape.shape, shape.dtype)
    if found.size:
        file.readinto(found.reshape(-1).view(np.uint8).data)  # type: ignore[attr-defined]
    return found
