"""Read a site's table from a CSV file, possibly compressed, or a Parquet file."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from unpooled.data.stored_columns import require_columns
from unpooled.errors import DataError

DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": ","}
LIKELY_DELIMITERS = ";\t|,"


def read_file(path: Path, names: Sequence[str], *, site: str, delimiter: str | None = None) -> pd.DataFrame:
    """The columns of the study from a file, whose extension determines its format."""
    path = expanded(path, site)
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    content = _bytes(path, site)
    if ending == ".parquet":
        table = _parquet(content, path, names, site)
    elif ending in DELIMITERS:
        table = _csv(content, path, names, site, delimiter or DELIMITERS[ending])
    else:
        raise DataError(
            f"the file of site '{site}' must be CSV or Parquet",
            found=f"a file that ends in '{ending}': {path}",
            remedy="use a file that ends in .csv, .tsv, .txt (optionally with .gz) or .parquet",
        )
    return plain(table).to_pandas(ignore_metadata=True)


def expanded(path: Path, site: str) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        raise DataError(
            f"site '{site}' must have a readable file",
            found=f"a path in the home folder of an unknown user: {path}",
            remedy="correct the name after '~', or write the full path",
        ) from None


def _bytes(path: Path, site: str) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix.lower() == ".gz" else content
    except FileNotFoundError:
        found, remedy = (
            "no such file",
            "correct the path; in a study file it is relative to the file's folder",
        )
    except IsADirectoryError:
        found, remedy = "a folder", "give the path of one file inside it"
    except PermissionError:
        found, remedy = "a file that you may not read", "ask for permission to read it"
    except (gzip.BadGzipFile, EOFError, zlib.error):
        found, remedy = "a file that cannot be decompressed", "copy it again, or remove '.gz' from its name"
    except OSError:
        found, remedy = "a file that cannot be read", "check the disk or the network drive"
    except ValueError:  # the path contains a NUL
        found, remedy = "an invalid path", "remove the control character from it"
        path = Path(path.as_posix().replace("\0", "?"))
    raise DataError(f"site '{site}' must have a readable file", found=f"{found}: {path}", remedy=remedy)


def _parquet(content: bytes, path: Path, names: Sequence[str], site: str) -> pa.Table:
    try:
        file = parquet.ParquetFile(io.BytesIO(content))
        require_columns(names, file.schema_arrow.names, site=site)
        table = file.read(columns=list(names)).select(list(names))
        table.validate(full=True)  # otherwise invalid text would be found only later
        return table
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        pass
    raise unreadable(path, site)


def unreadable(path: Path, site: str) -> DataError:
    return DataError(
        f"the file of site '{site}' must be Parquet, according to its name",
        found=f"another format, or a damaged file: {path}",
        remedy="write the file again, or correct its extension",
    )


def _csv(content: bytes, path: Path, names: Sequence[str], site: str, delimiter: str) -> pa.Table:
    if len(delimiter) != 1:
        raise DataError(
            f"the delimiter of site '{site}' must be one character",
            found=f"{len(delimiter)} characters",
            remedy='write delimiter = ";" or, for tabs, delimiter = "\\t"',
        )
    require_columns(names, _header(content, path, site, delimiter), site=site)
    try:
        table = arrow_csv.read_csv(
            io.BytesIO(content),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(include_columns=list(names), strings_can_be_null=True),
        )
    except pa.ArrowException:
        problem = _ragged(content, path, site, delimiter)
    else:
        if not any(pa.types.is_binary(field.type) for field in table.schema):
            return table
        problem = _encoding(path, site)
    raise problem


def _header(content: bytes, path: Path, site: str, delimiter: str) -> list[str]:
    text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline="")
    try:
        header = next((row for row in csv.reader(text, delimiter=delimiter) if row), [])
    except UnicodeDecodeError:
        raise _encoding(path, site) from None
    except csv.Error:
        raise _ragged(content, path, site, delimiter) from None
    if not header:
        raise DataError(
            f"the file of site '{site}' must have a header and rows",
            found=f"an empty file: {path}",
            remedy="export it again",
        )
    _require_delimiter(header, path, site, delimiter)
    return header


def _require_delimiter(header: list[str], path: Path, site: str, delimiter: str) -> None:
    likely = [mark for mark in LIKELY_DELIMITERS if len(header) == 1 and mark in header[0]]
    if likely:
        raise DataError(
            f"the columns of site '{site}' must be separated by {json.dumps(delimiter)}",
            found=f"a header with a single column: {path}",
            remedy=f"add `delimiter = {json.dumps(likely[0])}` to the site's section of the study",
        )


def _ragged(content: bytes, path: Path, site: str, delimiter: str) -> DataError:
    """Locate the first misfitting row by number, since the parser's own message quotes its values."""
    found = _first_misfit(content, delimiter) or "a row that does not match the header"
    return DataError(
        f"every row of site '{site}' must have as many fields as the header",
        found=f"{found}: {path}",
        remedy="check for a stray delimiter, a missing quote, or row names without a header",
    )


def _first_misfit(content: bytes, delimiter: str) -> str | None:
    text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", errors="replace", newline="")
    try:
        rows = [len(row) for row in csv.reader(text, delimiter=delimiter) if row]
    except csv.Error:
        return None
    for number, fields in enumerate(rows[1:], start=1):
        if fields != rows[0]:
            return f"row {number} has {fields} fields where the header has {rows[0]}"
    return None


def _encoding(path: Path, site: str) -> DataError:
    return DataError(
        f"the file of site '{site}' must be UTF-8 text",
        found=f"bytes in another encoding: {path}",
        remedy="export it again as 'CSV UTF-8'",
    )


def plain(table: pa.Table) -> pa.Table:
    """Convert exact decimals to floats, with which all studies compute."""
    fields = [
        field.with_type(pa.float64()) if pa.types.is_decimal(field.type) else field for field in table.schema
    ]
    return table.cast(pa.schema(fields))
