"""Check at the site, before anything is sent, that a table fits the study.

Errors contain counts and names of columns, never values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from unpooled.data.stored_columns import (
    column,
    fits,
    level_codes,
    missing,
    numbers,
    require_columns,
    stored_as,
)
from unpooled.errors import DataError, Problems
from unpooled.study import ColumnRoles, Description

LARGEST = 1e12  # fourth powers stay far from the limit of float64, and sums keep their precision
MOST_LEVELS = 50
LEAVE_EMPTY = "leave missing values empty (a code such as '.' turns the column into text)"
DROP_UNKNOWN = "drop these rows at the site, or set `drop_unknown = true` under [columns]"
LIST_AS_INCOMPLETE = (
    'list the column under `incomplete`, and use the method causal_fi, or set missing = "complete cases" or '
    '"indicator"'
)


def check(frame: pd.DataFrame, columns: ColumnRoles, *, site: str) -> None:
    """Refuse a table that the study cannot use; the error names all columns with a problem, each with a
    remedy."""
    require_columns(columns.names, frame.columns, site=site)
    check_columns(frame, columns, site=site)


def check_columns(frame: pd.DataFrame, columns: ColumnRoles, *, site: str) -> None:
    """As `check`, for a table that may lack columns."""
    problems = Problems()
    with problems.collected():
        _require_rows(len(frame), site)
    for name in [name for name in columns.names if name in frame.columns]:
        with problems.collected():
            _check_column(column(frame, name), columns, site)
    problems.raise_all()


def _check_column(series: pd.Series, columns: ColumnRoles, site: str) -> None:
    """Refuse a column that cannot be used in its role."""
    if series.name == columns.treatment:
        require_treatment(series, site=site)
    elif series.name == columns.outcome:
        require_outcome(series, columns, site=site)
    elif series.name in columns.covariates:
        require_complete(series, site=site, remedy=LIST_AS_INCOMPLETE)
        _require_usable(series, site)
    elif series.name in columns.incomplete:
        _require_usable(series, site)
    elif series.name == columns.weight:
        require_weights(series, site=site)
    elif series.name == columns.cluster:
        require_storage(series, site=site)
        require_complete(series, site=site, remedy="give every person a cluster, if need be one of their own")


def require_weights(weight: pd.Series, *, site: str) -> None:
    """Require finite numbers above 0, without missing values."""
    require_storage(weight, site=site)
    require_complete(weight, site=site, remedy="drop these rows at the site, or give them a weight")
    if stored_as(weight) != "numbers":
        raise DataError(
            f"sampling weight '{weight.name}' must be numeric at site '{site}'",
            found="text",
            remedy="recode it as numbers, written with a decimal point",
        )
    require_finite(weight, site=site)
    wrong = int((numbers(weight) <= 0.0).sum())
    if wrong:
        raise DataError(
            f"sampling weight '{weight.name}' must be above 0 at site '{site}'",
            found=f"{wrong} of {len(weight)} values that are 0 or below",
            remedy="drop the rows of people who stand for nobody, or correct the weights",
        )


def _require_rows(rows: int, site: str) -> None:
    if rows < 2:
        raise DataError(
            f"site '{site}' must have at least two rows",
            found=f"{rows} row" if rows else "no rows",
            remedy="leave the site out, or merge it with another",
        )


def check_together(described: Description, columns: ColumnRoles, *, site: str) -> None:
    """Refuse a table for what its batches show only together: few rows, or too many levels of a column."""
    _require_rows(described.rows, site)
    _require_two_levels(columns.treatment, len(described.arms), site)
    for one in (*described.columns, *described.incomplete):
        _require_levels(one.name, one.levels, described.rows, site)


def without_unknown(frame: pd.DataFrame, columns: ColumnRoles) -> pd.DataFrame:
    """Drop the rows without a known treatment and outcome, if the study sets `drop_unknown`."""
    if not columns.drop_unknown:
        return frame
    return frame.dropna(subset=[columns.treatment, columns.outcome]).reset_index(drop=True)


def complete_cases(frame: pd.DataFrame, columns: ColumnRoles) -> np.ndarray:
    """Who stays in a study that leaves out people with a missing value of an incomplete column."""
    if columns.missing != "complete cases":
        return np.ones(len(frame), dtype=bool)
    gaps = np.asarray(frame[list(columns.incomplete)].isna(), dtype=bool)
    return np.asarray(~gaps.any(axis=1))


def require_treatment(treatment: pd.Series, *, site: str) -> None:
    """Require at most two levels and no missing values."""
    require_storage(treatment, site=site)
    require_complete(treatment, site=site, remedy=DROP_UNKNOWN)
    if stored_as(treatment) == "numbers":
        _require_no_infinite(treatment, site)
    _require_two_levels(str(treatment.name), len(level_codes(treatment)[1]), site)


def _require_two_levels(name: str, levels: int, site: str) -> None:
    if levels > 2:
        raise DataError(
            f"treatment '{name}' must have two levels at site '{site}'",
            found=f"{levels} levels",
            remedy="recode it to 0 (control) and 1 (treated), or keep only two of the levels; a code for "
            "missing values counts as a level",
        )


def require_outcome(outcome: pd.Series, columns: ColumnRoles, *, site: str) -> None:
    """Require numbers that the family of the outcome allows, and no missing values."""
    require_storage(outcome, site=site)
    require_complete(outcome, site=site, remedy=DROP_UNKNOWN)
    if stored_as(outcome) != "numbers":
        raise DataError(
            f"outcome '{outcome.name}' must be numeric at site '{site}'",
            found="text",
            remedy=f"recode it as numbers, written with a decimal point; {LEAVE_EMPTY}",
        )
    require_finite(outcome, site=site)
    _require_family(numbers(outcome), columns, site)


def require_complete(series: pd.Series, *, site: str, remedy: str) -> None:
    """Require a column without missing values."""
    count = missing(series)
    if count:
        raise DataError(
            f"column '{series.name}' must have no missing values at site '{site}'",
            found=f"{count} missing of {len(series)}",
            remedy=remedy,
        )


def _require_usable(series: pd.Series, site: str) -> None:
    """Require finite numbers, or text with few levels; values may be missing."""
    require_storage(series, site=site)
    if stored_as(series) == "numbers":
        require_finite(series, site=site)
    else:
        _require_few_levels(series, site)


def require_storage(series: pd.Series, *, site: str) -> None:
    """Require a column of numbers or text."""
    if stored_as(series) == "unsupported":
        raise DataError(
            f"column '{series.name}' must be numbers or text at site '{site}'",
            found=f"dates, mixed or other values (stored as {series.dtype})",
            remedy="recode it as numbers (for example days since a date), or entirely as text",
        )


def require_finite(series: pd.Series, *, site: str) -> None:
    """Require values that are finite and not too large to compute with."""
    _require_no_infinite(series, site)
    values = numbers(series)
    huge = int((np.abs(values) > LARGEST).sum())
    if huge:
        raise DataError(
            f"column '{series.name}' must be smaller than {LARGEST:.0e} at site '{site}'",
            found=f"larger: {huge} of {len(values)} values",
            remedy="change the unit of the column at every site (for example to millions)",
        )


def _require_no_infinite(series: pd.Series, site: str) -> None:
    infinite = int(np.isinf(numbers(series)).sum())
    if infinite:
        raise DataError(
            f"column '{series.name}' must be finite at site '{site}'",
            found=f"infinite: {infinite} of {len(series)} values",
            remedy="drop these rows or correct the values at the site",
        )


def _require_few_levels(series: pd.Series, site: str) -> None:
    present = series.dropna()
    _require_levels(str(series.name), level_codes(present)[1], len(present), site)


def _require_levels(column: str, names: Sequence[str], people: int, site: str) -> None:
    levels, numeric = len(names), sum(_is_number(name) for name in names)
    if levels <= MOST_LEVELS and levels <= max(2, people / 2):
        return
    if levels / 2 < numeric < levels:
        looks = f"{numeric} of them numbers: these may be numbers mixed with codes for missing values"
    else:
        looks = "which may be an identifier"
    raise DataError(
        f"text column '{column}' must have few levels at site '{site}'",
        found=f"{levels} levels in {people} rows, {looks}",
        remedy="leave it out, group its levels or, if it contains numbers, write them with a decimal point; "
        + LEAVE_EMPTY,
    )


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _require_family(values: np.ndarray, columns: ColumnRoles, site: str) -> None:
    wrong = ~fits(values, columns.family)
    if wrong.any():
        allowed = "0 or 1" if columns.family == "binary" else "whole numbers, 0 or more"
        raise DataError(
            f"{columns.family} outcome '{columns.outcome}' must be {allowed} at site '{site}'",
            found=f"{int(wrong.sum())} other values of {len(values)}",
            remedy='recode the outcome, or set family = "continuous" in the study\'s columns',
        )
