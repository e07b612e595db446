"""What if values are not missing at random? Missing ones may be larger than what is seen would make them."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from unpooled.errors import StudyError, nearest
from unpooled.protocol.records import Scaling

ARMS = ("control", "treated")


class Shift(BaseModel):
    """One column's missing values, at every site and in both arms unless it is said where."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    column: str
    size: float
    """In sds of a number; in probits of a 0/1 column or of a count."""
    arm: Literal["control", "treated"] | None = None
    site: str | None = None


def by_site(shifts: tuple[Shift, ...], scaling: Scaling) -> np.ndarray | None:
    """[site, arm, feature]; None where nothing is shifted."""
    if not any(shift.size for shift in shifts):
        return None
    sites = list(scaling.site_names)
    columns = {column.name: (column.kind, column.width) for column in scaling.incomplete_columns}
    first = dict(zip(columns, np.cumsum([0, *[width for _, width in columns.values()]]), strict=False))
    found = np.zeros((len(sites), len(ARMS), sum(width for _, width in columns.values())))
    for shift in shifts:
        require_known("column", shift.column, list(columns), "an incomplete column of the study")
        if columns[shift.column][0] == "categorical":
            raise StudyError(
                "a shift needs a column whose values can be larger",
                found=f"'{shift.column}', a category",
                remedy="shift a column of numbers, counts or 0/1",
            )
        if shift.site is not None:
            require_known("site", shift.site, sites, "a site of the study")
        where = [shift.site is None or name == shift.site for name in sites]
        arms = [shift.arm is None or name == shift.arm for name in ARMS]
        found[np.ix_(where, arms, [first[shift.column]])] += shift.size
    return found


def require_known(what: str, name: str, known: list[str], expected: str) -> None:
    """A column, an arm or a site by a name that there is."""
    if name not in known:
        raise StudyError(
            f"a shift's {what} must be {expected}", found=f"'{name}'", remedy=nearest(name, known)
        )
