"""Read a site's table from a database by one read-only query.

Errors never contain a password or the value of a row.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from unpooled.data.stored_columns import require_columns
from unpooled.errors import DataError

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine

CONNECT_SECONDS = 10
PART = 2**17
"""Rows that are fetched at a time."""


def read_database(url: str, query: str, names: Sequence[str], *, site: str) -> pd.DataFrame:
    """The columns of the study from the result of the query."""
    rows = [row for part in _parts(url, query, names, site) for row in part]
    return pd.DataFrame.from_records(rows, columns=list(names), coerce_float=True)


def read_database_in_parts(
    url: str, query: str, names: Sequence[str], *, site: str
) -> Generator[pd.DataFrame]:
    """The same in parts of up to `PART` rows, which are fetched one after another; at least one part."""
    empty = True
    with closing(_parts(url, query, names, site)) as parts:
        for rows in parts:
            yield pd.DataFrame.from_records(rows, columns=list(names), coerce_float=True)
            empty = False
    if empty:
        yield pd.DataFrame(columns=list(names))


def _parts(url: str, query: str, names: Sequence[str], site: str) -> Generator[list[tuple[Any, ...]]]:
    from sqlalchemy.exc import SQLAlchemyError

    address = _address(url, site)
    engine = _engine(address, site)
    try:
        connection = engine.connect()
    except (SQLAlchemyError, OSError) as error:
        problem = _refused(address, _reason(error), site)
    else:
        with connection:
            yield from _fetch(connection, query, names, site)
            return
    raise problem


def _address(url: str, site: str) -> URL:
    """The parsed URL; PostgreSQL without a named driver uses psycopg 3."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        address = make_url(url)
    except (ArgumentError, ValueError):
        raise DataError(
            f"the database of site '{site}' must be given as a URL",
            found="a URL that cannot be parsed (not shown, since it may contain a password)",
            remedy="write it as dialect://user@host/database, and percent-encode special characters",
        ) from None
    if address.drivername in ("postgresql", "postgres"):
        address = address.set(drivername="postgresql+psycopg")
    _require_file(address, site)
    return _never_created(address)


def _require_file(address: URL, site: str) -> None:
    """Refuse a missing SQLite file, which SQLite would otherwise create."""
    name = address.database or ""
    if address.get_backend_name() != "sqlite" or name in ("", ":memory:") or _is_uri(address):
        return
    if not Path(name).is_file():
        raise DataError(
            f"site '{site}' must have a readable database",
            found=f"no such file: {name}",
            remedy="correct the path after sqlite:///; in a study file it is relative to the file's folder",
        )


def _is_uri(address: URL) -> bool:
    """Whether the database is an SQLite URI such as file:site.db?mode=ro, which only SQLite can parse."""
    wanted = str(address.query.get("uri", "")).strip().lower() in ("true", "yes", "on", "y", "t", "1")
    return address.get_backend_name() == "sqlite" and wanted and (address.database or "").startswith("file:")


def _never_created(address: URL) -> URL:
    """Set the mode of an SQLite URI so that a missing database is never created."""
    if not _is_uri(address):
        return address
    name, _, _ = (address.database or "").partition("?")  # an encoded '?' could set mode=rwc
    asked = str(address.query.get("mode", ""))
    mode = asked if asked in ("ro", "memory") else "rw"
    return address.set(database=name).update_query_dict({"mode": mode})


def _engine(address: URL, site: str) -> Engine:
    from sqlalchemy import create_engine
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError
    from sqlalchemy.pool import NullPool

    patience = {"connect_timeout": CONNECT_SECONDS} if address.drivername == "postgresql+psycopg" else {}
    patience = {key: value for key, value in patience.items() if key not in address.query}
    try:
        return create_engine(address, poolclass=NullPool, connect_args=patience)
    except ImportError:
        postgresql = address.get_backend_name() == "postgresql"
        remedy = "pip install 'unpooled[postgresql]'" if postgresql else "install the driver with pip"
        found = f"no driver for '{address.drivername}' in this environment"
    except (NoSuchModuleError, ArgumentError):
        found = f"no dialect called '{address.drivername}'"
        remedy = "use a dialect that SQLAlchemy knows, such as postgresql:// or sqlite:///"
    raise DataError(f"the database of site '{site}' must have a driver here", found=found, remedy=remedy)


def _fetch(
    connection: Connection, query: str, names: Sequence[str], site: str
) -> Generator[list[tuple[Any, ...]]]:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("pragma query_only = on")
        connection = connection.execution_options(no_parameters=True, postgresql_readonly=True)
        # Without it, PostgreSQL's driver would fetch all rows before the first can be read.
        connection = connection.execution_options(stream_results=True)
        result = connection.exec_driver_sql(query)
        present = list(result.keys())
        require_columns(names, present, site=site)
        places = [present.index(name) for name in names]
        for part in result.partitions(PART):
            yield [tuple(row[place] for place in places) for row in part]
        return
    except SQLAlchemyError as error:
        reason = _reason(error)
    if reason == "SQLITE_NOTADB":
        raise DataError(
            f"the database of site '{site}' must be an SQLite database",
            found="a file that is not an SQLite database, or that is encrypted",
            remedy="correct the path after sqlite:///, or give a CSV or Parquet file as `path` instead",
        )
    raise DataError(
        f"the query of site '{site}' must return its table",
        found=f"the database could not execute it ({reason})",
        remedy="test the query in the database's own shell, and correct it in the study",
    )


def _refused(address: URL, reason: str, site: str) -> DataError:
    return DataError(
        f"the database of site '{site}' must accept the connection",
        found=f"{_masked(address)} refused it or cannot be reached ({reason})",
        remedy="check that it is running and that host, user, password and database are correct",
    )


def _masked(address: URL) -> str:
    """The URL without its password."""
    if "@" in (address.host or ""):  # an unescaped '@' in the password puts its end into the host
        return f"{address.drivername}://***"
    return address.set(query={}).render_as_string(hide_password=True)


def _reason(error: Exception) -> str:
    """The type of the driver's error, such as UndefinedTable; its message could contain a value."""
    cause = getattr(error, "orig", None) or error
    return str(getattr(cause, "sqlite_errorname", None) or type(cause).__name__)
