"""Large tables: read in batches of rows, anew for every pass, and never held whole.

A Parquet file stays where it is. The result of a database query is written to a temporary Parquet file, which
has no name on Linux and macOS and is gone when the study or the process ends. Batches have nearly equal
numbers of rows, the last one included, so that none of them is small.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import IO

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from unpooled.data.files import plain, unreadable
from unpooled.data.stored_columns import require_columns
from unpooled.data.validation import complete_cases, without_unknown
from unpooled.errors import DataError
from unpooled.study import ColumnRoles

LARGE = 2_000_000
"""Tables with more rows than this are read in batches."""
BATCH = 2**18
"""Most rows of a batch."""
PAGES = 2**16
"""Rows that are decoded at a time, and bytes of a column that are read at a time, times 16."""
BYTES = 200
"""What a value of a table that is held whole takes in memory during a study, with all copies of it."""


@dataclass(frozen=True)
class Batches:
    """A Parquet file whose rows are read in batches by `frames`."""

    file: Path | IO[bytes]
    columns: ColumnRoles
    site: str
    rows: int
    """Rows of the file, of which some may be dropped (`drop_unknown`)."""
    version: tuple[int, int]
    """Size and time of the last change of the file when it was opened."""
    whole: Batches | None = field(default=None, repr=False)
    """The batches of all rows, if these are of a part of them."""
    complete: bool | None = None
    """Whether only rows without, or only rows with, gaps in incomplete columns are read; None for all."""

    @property
    def sizes(self) -> list[int]:
        """Rows of every batch."""
        count = -(-self.rows // BATCH)
        return [(place + 1) * self.rows // count - place * self.rows // count for place in range(count)]


def in_batches(path: Path, columns: ColumnRoles, *, site: str) -> Batches | None:
    """The file as a table in batches, if it is Parquet and large."""
    if path.suffix.lower() != ".parquet" or not path.is_file():
        return None  # `read_file` reads it, or says what is wrong
    with _readable(path, site), parquet.ParquetFile(path) as file:
        if file.metadata.num_rows <= LARGE:
            return None
        require_columns(columns.names, file.schema_arrow.names, site=site)
        return Batches(path, columns, site, file.metadata.num_rows, _version(path))


def is_large(path: Path) -> bool:
    """Whether the file is read in batches."""
    return path.suffix.lower() == ".parquet" and parquet.read_metadata(path).num_rows > LARGE


def frames(table: pd.DataFrame | Batches, names: Sequence[str] | None = None) -> Iterator[pd.DataFrame]:
    """All rows of a table, batch by batch; a data frame is a single batch."""
    if isinstance(table, pd.DataFrame):
        yield table
        return
    columns = list(table.columns.names if names is None else names)
    unknown = [table.columns.treatment, table.columns.outcome] if table.columns.drop_unknown else []
    gaps = [] if table.complete is None else table.columns.incomplete
    needed = list(dict.fromkeys([*columns, *unknown, *gaps]))
    # Buffered, so that a row group is never read as a whole.
    reading = {"buffer_size": 16 * PAGES, "pre_buffer": False}
    with _readable(table.file, table.site), parquet.ParquetFile(table.file, **reading) as file:
        if _version(table.file) != table.version or file.metadata.num_rows != table.rows:
            raise DataError(
                f"the file of site '{table.site}' must not change during a study",
                found=f"a file that has changed: {table.file}",
                remedy="fit the study again, with a copy of the file that nothing writes to",
            )
        for part in _regrouped(file.iter_batches(PAGES, columns=needed), table.sizes):
            part.validate(full=True)
            frame = plain(part.select(needed)).to_pandas(ignore_metadata=True)
            frame = without_unknown(frame, table.columns)
            if table.complete is not None:
                chosen = complete_cases(frame, table.columns) == table.complete
                frame = frame.loc[chosen].reset_index(drop=True)
            frame = frame.loc[:, columns]
            if len(frame):
                yield frame


def by_completeness(
    table: pd.DataFrame | Batches, columns: ColumnRoles
) -> tuple[pd.DataFrame | Batches, pd.DataFrame | Batches | None]:
    """The rows that a study keeps, and those that it leaves out because of gaps; None if it leaves out none
    on principle."""
    if columns.missing != "complete cases":
        return table, None
    if isinstance(table, Batches):
        return replace(table, whole=table, complete=True), replace(table, whole=table, complete=False)
    kept = complete_cases(table, columns)
    return table.loc[kept].reset_index(drop=True), table.loc[~kept].reset_index(drop=True)


def whole(table: pd.DataFrame | Batches) -> pd.DataFrame:
    """All rows at once, if they can be expected to fit in memory."""
    if isinstance(table, pd.DataFrame):
        return table
    needed, memory = BYTES * table.rows * len(table.columns.names), memory_of_machine()
    if memory is not None and needed > memory:
        raise DataError(
            f"the table of site '{table.site}' must fit in memory, unless a method adds up sums over batches",
            found=f"{table.rows} rows, for which a study takes about {needed / 1e9:.0f} GB, and "
            f"{memory / 1e9:.0f} GB of memory",
            remedy="use AIPW or MetaAnalysis, which read large tables in batches, or a machine with "
            "more memory, or a sample of the rows",
        )
    return pd.concat(frames(table), ignore_index=True)


def memory_of_machine() -> int | None:
    """Bytes of physical memory; None if the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _regrouped(parts: Iterator[pa.RecordBatch], sizes: list[int]) -> Iterator[pa.Table]:
    """The same rows in tables of these sizes."""
    held: list[pa.RecordBatch] = []
    for size in sizes:
        while sum(map(len, held)) < size:
            held.append(next(parts))
        together = pa.Table.from_batches(held)
        held = together.slice(size).to_batches()
        yield together.slice(0, size)


def kept_on_disk(parts: Iterator[pd.DataFrame], columns: ColumnRoles, *, site: str) -> pd.DataFrame | Batches:
    """A table that arrives in parts, of which few are in memory at a time; whole if it is not large."""
    first, second = next(parts), next(parts, None)
    if second is None:
        return without_unknown(first, columns)
    with ExitStack() as closing:
        file = closing.enter_context(tempfile.TemporaryFile())
        with tempfile.TemporaryFile() as held, _writable(site):
            schemas = [_append(held, part, site) for part in chain([first, second], parts)]
            rows = _rewrite(held, file, schemas, site)
        found = Batches(file, columns, site, rows, _version(file))
        if rows <= LARGE:
            return whole(found)
        closing.pop_all()
    weakref.finalize(found, file.close)
    return found


def _rewrite(held: IO[bytes], file: IO[bytes], schemas: list[pa.Schema], site: str) -> int:
    """Write the parts as one Parquet file; its rows."""
    # Types that hold the values of all parts: a column may be empty in one of them.
    with _one_type(site):
        schema = pa.unify_schemas(schemas, promote_options="permissive")
    rows = 0
    held.seek(0)
    with parquet.ParquetWriter(file, schema) as writer:
        for _ in schemas:
            with pa.ipc.open_stream(held) as stream:
                table = stream.read_all()
            with _one_type(site):
                writer.write_table(table.cast(schema))
            rows += len(table)
    file.flush()
    return rows


def _append(file: IO[bytes], part: pd.DataFrame, site: str) -> pa.Schema:
    """Write a part behind those before."""
    with _one_type(site):
        table = pa.Table.from_pandas(part, preserve_index=False).replace_schema_metadata()
    with pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    return table.schema


@contextmanager
def _one_type(site: str) -> Iterator[None]:
    """Replace Arrow's errors, which contain values."""
    try:
        yield
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise DataError(
            f"each column of the query of site '{site}' must have one type",
            found="values of several types, or of a type that is no number, text, flag or time",
            remedy="convert the column in the query, such as `cast(age as double precision) as age`",
        ) from None


def _version(file: Path | IO[bytes]) -> tuple[int, int]:
    found = file.stat() if isinstance(file, Path) else os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


@contextmanager
def _readable(file: Path | IO[bytes], site: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise unreadable(file if isinstance(file, Path) else Path("a temporary file"), site) from None


@contextmanager
def _writable(site: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"the result of the query of site '{site}' must fit on the disk",
            found=f"a temporary file that cannot be written ({error.strerror or type(error).__name__})",
            remedy="free disk space, or name another folder in the environment variable TMPDIR",
        ) from None
