"""Is every column of the study in this site's table, and only once?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import pandas as pd

from unpooled.errors import DataError, nearest

LONGEST_LIST = 20


def require_columns(names: Iterable[str], present: Iterable[object], *, site: str) -> None:
    """Refuse a table that lacks one of the columns, or has it twice."""
    found = [str(name) for name in present]
    for name in names:
        if name not in found:
            raise DataError(
                f"site '{site}' must have the column '{name}'",
                found=f"no such column among its {len(found)}",
                remedy=closest(name, found),
            )
        if found.count(name) > 1:
            raise DataError(
                f"site '{site}' must have the column '{name}' once",
                found=f"{found.count(name)} columns with this name",
                remedy="rename or drop all but one of them",
            )


def column(frame: pd.DataFrame, name: str) -> pd.Series:
    """One column whose presence has been required."""
    return cast(pd.Series, frame[name])


def closest(name: str, present: list[str]) -> str:
    """The column the user may have meant; a very long list of columns is not worth printing."""
    for other in present:
        if other.strip().casefold() == name.strip().casefold():
            return f"did you mean '{other}'?"
    if not present:
        return "the table has no columns at all; check that it is the right one"
    hint = nearest(name, present)
    if hint.startswith("known:") and len(present) > LONGEST_LIST:
        return "no column has a similar name; check the study's columns and the site's table"
    return hint
