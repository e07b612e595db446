"""One site's table, from wherever it is kept: a data frame, a file or a database."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import pandas as pd

from unpooled.data.database import read_database
from unpooled.data.files import read_file
from unpooled.data.presence import require_columns
from unpooled.errors import DataError
from unpooled.study import Columns, Source

Table: TypeAlias = pd.DataFrame | str | Path | Source | tuple[str, str]


def read(source: Table, columns: Columns, *, site: str, names: tuple[str, ...] | None = None) -> pd.DataFrame:
    """The study's columns of one site's table, in the order of ``columns.names``, as a fresh frame.

    New people may come with fewer columns: `names` then says which are needed.

    >>> columns = Columns(treatment="quit", outcome="weight", covariates=("age",))
    >>> frame = pd.DataFrame({"age": [50, 61], "weight": [1.5, 0.2], "quit": [0, 1], "name": ["a", "b"]})
    >>> list(read(frame, columns, site="north").columns)
    ['quit', 'weight', 'age']
    """
    needed = columns.names if names is None else names
    if isinstance(source, pd.DataFrame):
        named = source.set_axis([str(name) for name in source.columns], axis=1)
        require_columns(needed, named.columns, site=site)
        frame = named.loc[:, list(needed)]
    else:
        frame = _stored(_source(source, site), needed, site)
    if len(frame) == 0:
        raise DataError(
            f"site '{site}' must have rows",
            found="a table with no rows",
            remedy="check the file or the query, or leave the site out",
        )
    return frame.reset_index(drop=True)  # a fresh frame: the input is never changed


def _stored(source: Source, names: tuple[str, ...], site: str) -> pd.DataFrame:
    if source.url is not None:
        return read_database(source.url, source.query or "", names, site=site)
    return read_file(Path(source.path or ""), names, site=site, delimiter=source.delimiter)


def _source(source: object, site: str) -> Source:
    match source:
        case Source(path=str(path)) | str(path) if "://" in path:
            raise _no_query(site)
        case Source():
            return source
        case str() | Path():
            return Source(path=str(source))
        case (str(url), str(query)) if query.strip():
            return Source(url=url, query=query)
        case (str(), str()):
            raise _no_query(site)
    raise DataError(
        f"site '{site}' must be a data frame, a path, or a database with a query",
        found=f"a {type(source).__name__}",
        remedy="give a pandas DataFrame, the path of a CSV or Parquet file, or (url, query)",
    )


def _no_query(site: str) -> DataError:
    return DataError(
        f"the database of site '{site}' must come with a query",
        found="a URL and no query",
        remedy='give (url, "select … from …"), or add `url` and `query` to the site\'s section of the study',
    )
