"""One table as several sites: by a column, or at random."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unpooled.data.kinds import level_names
from unpooled.data.presence import column, require_columns
from unpooled.data.validation import require_complete
from unpooled.errors import DataError


def split(
    frame: pd.DataFrame, by: str | None = None, sites: int | None = None, seed: int = 0
) -> dict[str, pd.DataFrame]:
    """One frame per site; the column that names the site is dropped, the index and the frame itself are kept.

    >>> frame = pd.DataFrame({"region": ["north", "south", "north"], "age": [50, 61, 44]})
    >>> {site: len(part) for site, part in split(frame, by="region").items()}
    {'north': 2, 'south': 1}
    """
    if (by is None) == (sites is None):
        raise DataError(
            "a table is split either `by` a column or into a number of `sites`",
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
    """Numbers in the order of numbers, then words in the order of words."""
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)
