"""The columns of a site's table: whether they are present, how they are stored, and their description."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar, cast

import numpy as np
import pandas as pd
from pandas.api import types

from unpooled.errors import DataError, Problems, nearest
from unpooled.study import LARGEST_COUNT, ColumnRoles, ColumnSchema, Description
from unpooled.study.family import Family
from unpooled.study.schema import Kind, level_name

T = TypeVar("T")
LONGEST_LIST = 20
LONGEST_NAME = 60


def require_columns(names: Iterable[str], present: Iterable[object], *, site: str) -> None:
    """Refuse a table in which one of the columns is missing or occurs more than once."""
    names, found = list(names), [str(name) for name in present]
    _require_header(names, found, site)
    problems = Problems()
    for name in names:
        with problems.collected():
            _require_column(name, found, site)
    problems.raise_all()


def _require_column(name: str, found: list[str], site: str) -> None:
    if name not in found:
        raise _about(
            name,
            f"site '{site}' must have the column '{name}'",
            found=f"no such column among its {len(found)} columns",
            remedy=closest(name, found),
        )
    if found.count(name) > 1:
        raise _about(
            name,
            f"site '{site}' must have the column '{name}' only once",
            found=f"{found.count(name)} columns with this name",
            remedy="rename or drop all but one of them",
        )


def _about(column: str, expected: str, *, found: str, remedy: str) -> DataError:
    error = DataError(expected, found=found, remedy=remedy)
    error.absent = column
    return error


def _require_header(names: list[str], present: list[str], site: str) -> None:
    """Refuse a table without a header, without showing its first row, which is taken for the names."""
    if (
        not names
        or any(name in present for name in names)
        or not any(looks_like_a_value(name) for name in present)
    ):
        return
    raise DataError(
        f"the table of site '{site}' must have a header with the study's columns",
        found="none of these columns, and values instead of names: the header appears to be missing",
        remedy="add the names of the columns; in a CSV file, on the first line",
    )


def looks_like_a_value(name: str) -> bool:
    """Whether a column's name may be a value of a row, and therefore must not be shown.

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
    """One column of the table, typed as a series."""
    return cast(pd.Series, frame[name])


def closest(name: str, present: list[str]) -> str:
    """A suggestion of the column that was meant; very long lists of columns are not shown."""
    for other in present:
        if other.strip().casefold() == name.strip().casefold():
            return f"did you mean '{other}'?"
    if not present:
        return "the table has no columns; check that it is the right one"
    hint = nearest(name, [other for other in present if not looks_like_a_value(other)])
    if hint == "known: " or (hint.startswith("known:") and len(present) > LONGEST_LIST):
        return "no column has a similar name; check the study's columns and the site's table"
    return hint


Stored = Literal["numbers", "text", "unsupported"]

_IN_OBJECTS: dict[str, Stored] = {
    "string": "text",
    "boolean": "numbers",
    "integer": "numbers",
    "floating": "numbers",
    "mixed-integer-float": "numbers",
    "decimal": "numbers",
    "empty": "numbers",
}


def stored_as(series: pd.Series) -> Stored:
    """How the values are stored; a pandas category counts as text even if its categories are numbers."""
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return "text"
    if types.is_complex_dtype(dtype):
        return "unsupported"
    if types.is_bool_dtype(dtype) or types.is_numeric_dtype(dtype):
        return "numbers"
    return _IN_OBJECTS.get(types.infer_dtype(series.dropna()), "unsupported")


def numbers(series: pd.Series) -> np.ndarray:
    """The values as float64, with NaN for missing values."""
    if isinstance(series.dtype, pd.SparseDtype):
        return np.asarray(series, dtype=np.float64)
    return series.to_numpy(dtype=np.float64, na_value=np.nan)


def level_codes(series: pd.Series) -> tuple[np.ndarray, list[str]]:
    """The place of everybody's level among the names of the levels, in a complete column."""
    codes, uniques = pd.factorize(series)
    if (codes < 0).any():
        raise ValueError("level names need a column without missing values")
    every = [level_name(value) for value in uniques]
    place = {name: number for number, name in enumerate(dict.fromkeys(every))}
    return np.array([place[name] for name in every], dtype=np.intp)[codes], list(place)


def level_names(series: pd.Series) -> np.ndarray:
    """The values of a complete column as level names, independent of how they are stored."""
    codes, names = level_codes(series)
    return np.array(names, dtype=object)[codes]


def level_counts(series: pd.Series) -> Counter[str]:
    """The number of people with each level of a complete column."""
    codes, names = level_codes(series)
    return Counter(dict(zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True)))


def missing(series: pd.Series) -> int:
    """The number of missing values."""
    return int(series.isna().sum())


CODES = (-9.0, -99.0, -999.0, -9999.0, 9.0, 99.0, 999.0, 9999.0, -1.0, -8.0, -88.0)
OFTEN = 3
"""A code is reported if it occurs at least this often."""
FAR = 1.5
"""A code is reported if its distance from the other values, times this, exceeds their range."""


def sentinel(series: pd.Series) -> tuple[float, int] | None:
    """A code that may stand for missing values, and how often it occurs: it is far from all other values.

    Such codes are reported to the user, never treated as missing.

    >>> sentinel(pd.Series([21.5, 30.0, 999, 27.1, 999, 25.0, 999, 24.2]))
    (999.0, 3)
    """
    if stored_as(series) != "numbers":
        return None
    values = numbers(series)
    values = values[~np.isnan(values)]
    for code in CODES:
        count, others = int(np.sum(values == code)), values[values != code]
        if count < OFTEN or len(others) < 2:
            continue
        gap = others.min() - code if code < others.min() else code - others.max()
        if 0.0 < np.ptp(others) < FAR * gap:
            return code, count
    return None


def describe(frame: pd.DataFrame, columns: ColumnRoles) -> Description:
    """Describe a table that passed ``check``: rows, rows per treatment level, and the kind of each covariate.

    >>> columns = ColumnRoles(treatment="quit", outcome="weight", covariates=("age",))
    >>> frame = pd.DataFrame({"quit": [0, 1, 1], "weight": [1.5, 0.2, 2.0], "age": [50, 61, 44]})
    >>> describe(frame, columns).arms
    {'0': 1, '1': 2}
    """
    arms = level_counts(column(frame, columns.treatment))
    return Description(
        rows=len(frame),
        arms={str(level): arms[level] for level in sorted(arms)},
        columns=tuple(describe_column(column(frame, name)) for name in columns.covariates),
        incomplete=tuple(
            describe_column(seen, counts=True)
            for seen in (column(frame, name).dropna() for name in columns.incomplete)
            if len(seen)
        ),
        outcome=narrowest_family(numbers(column(frame, columns.outcome)))
        if columns.family == "auto"
        else columns.family,
    )


def described_together(parts: Sequence[Description]) -> Description:
    """The description of a table from those of its batches.

    >>> one, other = (Description(rows=2, arms={arm: 2}, columns=()) for arm in ("0", "1"))
    >>> described_together([one, other, one]).arms
    {'0': 4, '1': 2}
    """
    arms = Counter[str]()
    for part in parts:
        arms.update(part.arms)
    return Description(
        rows=sum(part.rows for part in parts),
        arms={level: arms[level] for level in sorted(arms)},
        columns=_widest([part.columns for part in parts]),
        incomplete=_widest([part.incomplete for part in parts]),
        outcome=_last(FAMILIES_BY_WIDTH, [part.outcome for part in parts]),
    )


FAMILIES_BY_WIDTH: tuple[Family, ...] = ("binary", "count", "continuous")
KINDS_BY_WIDTH: tuple[Kind, ...] = ("binary", "count", "numeric", "categorical")


def _last(order: Sequence[T], found: Sequence[T]) -> T:
    """The last, in this order, of those that were found."""
    return order[max((order.index(one) for one in found), default=-1)]


def _widest(parts: Sequence[tuple[ColumnSchema, ...]]) -> tuple[ColumnSchema, ...]:
    """Every column with the narrowest kind, and the fewest levels, that allow all its values."""
    names = dict.fromkeys(one.name for part in parts for one in part)
    found = []
    for name in names:
        same = [one for part in parts for one in part if one.name == name]
        kind = _last(KINDS_BY_WIDTH, [one.kind for one in same])
        levels = tuple(sorted({level for one in same for level in one.levels}))
        found.append(ColumnSchema(name=name, kind=kind, levels=levels))
    return tuple(found)


def fits(values: np.ndarray, family: str) -> np.ndarray:
    """Which outcomes a family allows.

    >>> fits(np.array([0.0, 2.0, 0.5]), "count").tolist()
    [True, True, False]
    """
    if family == "binary":
        return np.isin(values, (0, 1))
    if family == "count":
        return (values >= 0) & (values == np.floor(values))
    return np.ones(len(values), dtype=bool)


def narrowest_family(values: np.ndarray) -> Family:
    """Binary if all outcomes are 0 or 1, count if all are 0, 1, 2, …, otherwise continuous."""
    if fits(values, "binary").all():
        return "binary"
    return "count" if fits(values, "count").all() else "continuous"


def describe_column(series: pd.Series, *, counts: bool = False) -> ColumnSchema:
    """Numbers that are all 0 or 1 are binary, other numbers numeric; text and categories are categorical.

    With `counts`, whole numbers from 0 to LARGEST_COUNT are counts.
    """
    name = str(series.name)
    if stored_as(series) == "text":
        return ColumnSchema(name=name, kind="categorical", levels=tuple(sorted(level_codes(series)[1])))
    values = numbers(series)
    if np.isin(values, (0, 1)).all():
        return ColumnSchema(name=name, kind="binary")
    whole = counts and np.isin(values, np.arange(LARGEST_COUNT + 1)).all()
    return ColumnSchema(name=name, kind="count" if whole else "numeric")
