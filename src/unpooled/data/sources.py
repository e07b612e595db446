"""The tables of the sites: read from a data frame, a file or a database, or split off a single table."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd

from unpooled.data.batches import Batches, in_batches, is_large, kept_on_disk
from unpooled.data.database import read_database, read_database_in_parts
from unpooled.data.files import expanded, read_file
from unpooled.data.stored_columns import column, level_names, require_columns
from unpooled.data.validation import require_complete, without_unknown
from unpooled.errors import DataError
from unpooled.study import ColumnRoles, Source

Table: TypeAlias = pd.DataFrame | str | Path | Source | tuple[str, str]
"""A data frame, the path of a file, a `Source`, or a database URL with a query."""


def read(
    source: Table, columns: ColumnRoles, *, site: str, names: tuple[str, ...] | None = None
) -> pd.DataFrame:
    """The columns of the study from one site's table, in the order of ``columns.names``, as a new frame.

    `names` selects other columns, for tables that do not need all of them.

    >>> columns = ColumnRoles(treatment="quit", outcome="weight", covariates=("age",))
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
    _require_rows(frame, site)
    return frame.reset_index(drop=True)  # a new frame: the input is never changed


def read_or_batches(source: Table, columns: ColumnRoles, *, site: str) -> pd.DataFrame | Batches:
    """As `read`, but a large Parquet file, or the result of a database query, is read in batches."""
    if isinstance(source, pd.DataFrame):
        return without_unknown(read(source, columns, site=site), columns)
    stored = _source(source, site)
    if stored.url is not None:
        parts = read_database_in_parts(stored.url, stored.query or "", columns.names, site=site)
        with closing(parts):
            table = kept_on_disk(parts, columns, site=site)
        if isinstance(table, pd.DataFrame):
            _require_rows(table, site)
        return table
    batches = in_batches(expanded(Path(stored.path or ""), site), columns, site=site)
    if batches is not None:
        return batches
    return without_unknown(read(source, columns, site=site), columns)


def read_some(source: Table, columns: ColumnRoles, without: set[str], *, site: str) -> pd.DataFrame | None:
    """The columns of the study but these, from a table that is in memory or a file that is read whole."""
    names = tuple(name for name in columns.names if name not in without)
    if not isinstance(source, pd.DataFrame):
        stored = _source(source, site)
        if stored.url is not None or is_large(expanded(Path(stored.path or ""), site)):
            return None
    found = read(source, columns, site=site, names=names)
    return found if {columns.treatment, columns.outcome} & without else without_unknown(found, columns)


def _require_rows(frame: pd.DataFrame, site: str) -> None:
    if len(frame) == 0:
        raise DataError(
            f"site '{site}' must have rows",
            found="a table with no rows",
            remedy="check the file or the query, or leave the site out",
        )


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


def split(
    frame: pd.DataFrame, by: str | None = None, sites: int | None = None, seed: int = 0
) -> dict[str, pd.DataFrame]:
    """Split a table into one table per site, by a column or at random.

    Parameters
    ----------
    frame : pandas.DataFrame
        The table. It is not changed.
    by : str, optional
        The column with the site of each row. It is dropped from the result and must have no missing values.
    sites : int, optional
        The number of sites of equal size for a random split, instead of `by`.
    seed : int, default=0
        The seed of the random split.

    Returns
    -------
    dict of str to pandas.DataFrame
        The tables by site, with the index of `frame`. The sites are named after the levels of `by`, or
        ``site1``, ``site2``, … .

    Raises
    ------
    DataError
        If not exactly one of `by` and `sites` is given, or the table cannot be split that way.

    Examples
    --------
    >>> frame = pd.DataFrame({"region": ["north", "south", "north"], "age": [50, 61, 44]})
    >>> {site: len(part) for site, part in split(frame, by="region").items()}
    {'north': 2, 'south': 1}
    """
    if (by is None) == (sites is None):
        raise DataError(
            "a table must be split either `by` a column or into a number of `sites`",
            found="both" if by is not None else "neither",
            remedy='give by="region" or sites=3',
        )
    if by is not None:
        return _by_column(frame, by)
    return _at_random(frame, int(sites or 0), seed)


def _by_column(frame: pd.DataFrame, by: str) -> dict[str, pd.DataFrame]:
    require_columns([by], frame.columns, site="the table to split")
    require_complete(
        column(frame, by), site="the table to split", remedy="drop these rows, or give them a site"
    )
    names = level_names(column(frame, by))
    rest = frame.drop(columns=by)
    return {str(name): rest.loc[names == name].copy() for name in sorted(set(names), key=_natural)}


def _at_random(frame: pd.DataFrame, sites: int, seed: int) -> dict[str, pd.DataFrame]:
    if not 1 <= sites <= len(frame):
        raise DataError(
            "the number of sites must be between 1 and the number of rows",
            found=f"{sites} sites for {len(frame)} rows",
            remedy="give fewer sites, or more rows",
        )
    order = np.random.default_rng(seed).permutation(len(frame))
    parts = np.array_split(order, sites)
    return {f"site{number}": frame.iloc[np.sort(part)].copy() for number, part in enumerate(parts, start=1)}


def _natural(name: str) -> tuple[int, int, str]:
    """Sort numbers numerically, then text alphabetically."""
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)
