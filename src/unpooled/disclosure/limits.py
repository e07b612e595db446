"""Disclosure limits owned by a site, and the checks that refuse a reply which would break them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from unpooled.errors import LimitRefusal

LEAST = 10
"""Minimum number of people at a site for its own results to be sent or shown."""
CELL = 5
"""Minimum number of people behind any number that is sent or shown."""


@dataclass(frozen=True)
class Limits:
    """Disclosure limits of a site: it refuses an answer that would break one of them.

    Each organisation sets its own limits. They apply to remote sites always, and to tables in this process
    only if they are passed to `fit`. They catch obvious cases; they do not make the statistics anonymous.

    Parameters
    ----------
    rows : int, default=10
        Fewest rows that any statistic may rest on.
    cell : int, default=5
        Fewest people in an arm, in a fold of an arm, or with any level of a binary or categorical column.
    share : float, default=1/3
        Most features per row: a stage with p features needs at least p / `share` rows.

    Examples
    --------
    >>> Limits(cell=10)
    Limits(rows=10, cell=10, share=0.3333333333333333)
    """

    rows: int = LEAST
    cell: int = CELL
    share: float = 1.0 / 3.0


NONE = Limits(rows=0, cell=0, share=float("inf"))
"""For tables that are all in one process, such as simulations."""


def check_rows(limits: Limits, count: int) -> None:
    if count < limits.rows:
        raise LimitRefusal(
            f"a site must have at least {limits.rows} rows",
            found="fewer rows",
            remedy="leave this site out of the study",
        )


def check_cells(limits: Limits, cells: dict[str, int]) -> None:
    """Refuse if any named group is neither empty nor large enough."""
    small = sorted(name for name, count in cells.items() if 0 < count < limits.cell)
    if small:
        raise LimitRefusal(
            f"every group must hold at least {limits.cell} people",
            found=f"smaller groups in: {', '.join(small)}",
            remedy="merge rare categories, use fewer folds or a single structure, or leave out the column "
            "or the site",
        )


def check_parameters(limits: Limits, parameters: int, count: int) -> None:
    if parameters > limits.share * count:
        raise LimitRefusal(
            f"a site allows at most {limits.share:.2g} features per row",
            found=f"{parameters} features for {count} rows",
            remedy="use fewer covariates or basis functions, or leave this site out of the study",
        )


def smallest_pattern(limits: Limits, columns: int) -> int:
    """Minimum number of people for a missingness pattern to be reported.

    With fewer people than columns, single rows could be recovered from the products of the columns.
    """
    return max(limits.cell, math.ceil(columns / limits.share))
