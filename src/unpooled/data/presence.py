"""Is every column of the study in this site's table, and only once?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import pandas as pd

from unpooled.errors import DataError, nearest

LONGEST_LIST = 20
LONGEST_NAME = 60


def require_columns(names: Iterable[str], present: Iterable[object], *, site: str) -> None:
    """Refuse a table that lacks one of the columns, or has it twice."""
    names, found = list(names), [str(name) for name in present]
    _require_header(names, found, site)
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


def _require_header(names: list[str], present: list[str], site: str) -> None:
    """Without a header the first person's values stand where names should: none of them is shown."""
    if (
        not names
        or any(name in present for name in names)
        or not any(looks_like_a_value(name) for name in present)
    ):
        return
    raise DataError(
        f"the table of site '{site}' must have a header with the study's columns",
        found="none of these columns, and values where names should be: it looks as if it had no header",
        remedy="give the columns their names: in a CSV file, on its first line",
    )


def looks_like_a_value(name: str) -> bool:
    """Whether a column's name may be somebody's value, and so must not be shown.

    >>> [looks_like_a_value(name) for name in ("age", "61.5", "1e3", "2020-01-31", "", "x1")]
    [False, True, True, True, True, False]
    """
    if len(name) > LONGEST_NAME or not name.isprintable() or not any(sign.isalpha() for sign in name):
        return True
    try:
        float(name)
    except ValueError:
        return False
    return True


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
    hint = nearest(name, [other for other in present if not looks_like_a_value(other)])
    if hint == "known: " or (hint.startswith("known:") and len(present) > LONGEST_LIST):
        return "no column has a similar name; check the study's columns and the site's table"
    return hint
