"""Disclosure limits owned by a site, and the checks that refuse a reply which would break them."""

from __future__ import annotations

import math
from collections.abc import Collection

from unpooled.errors import LimitRefusal
from unpooled.protocol.records import CELL, LEAST, Limits

__all__ = [
    "CELL", "LEAST", "NONE", "Limits", "check_cells", "check_groups", "check_rows",
    "fewest_in_arm", "group_problem", "smallest_pattern",
]  # fmt: skip


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
    small = sorted(name for name, count in cells.items() if count < 0 or 0 < count < limits.cell)
    if small:
        raise LimitRefusal(
            f"every group must hold at least {limits.cell} people",
            found=f"smaller groups in: {', '.join(small)}",
            remedy="merge rare categories, use fewer folds or a single structure, or leave out the column "
            "or the site",
        )


FOLD_CELLS = 4
"""A fold of an arm must have this many times `cell` people, so that its sums rest on `cell` of them."""


def group_problem(limits: Limits, features: int, arms: Collection[int], folds: int) -> str | None:
    """Why sums of products of this many features may not be sent from a site with these arms, if so.

    The sums of a fold of an arm follow from those with and without the fold, so that such a fold is the
    smallest group whose sums the coordinator knows; without folds it is the smaller arm.
    """
    group = min(arms, default=0) // max(folds, 1)
    if group < limits.cell * (FOLD_CELLS if folds > 1 else 1):
        return f"groups of {group} people, the smaller arm divided into {max(folds, 1)}"
    if features > limits.share * group:
        return f"{features} features for groups of {group} people"
    return None


def fewest_in_arm(limits: Limits, features: int, folds: int) -> int:
    """The smallest arm of a site whose sums of products of this many features may be sent.

    >>> fewest_in_arm(Limits(), features=9, folds=0), fewest_in_arm(Limits(), features=9, folds=3)
    (27, 81)
    """
    group = max(limits.cell * (FOLD_CELLS if folds > 1 else 1), math.ceil(features / limits.share), 1)
    return group * max(folds, 1)


def check_groups(limits: Limits, features: int, arms: Collection[int], folds: int) -> None:
    """Refuse statistics of too many features for the smallest group whose sums can be worked out."""
    problem = group_problem(limits, features, arms, folds)
    if problem is not None:
        raise LimitRefusal(
            f"a site allows at most {limits.share:.2g} features per person of the smallest group whose sums "
            f"can be worked out, and groups of at least {limits.cell}",
            found=problem,
            remedy="use fewer covariates, basis functions or folds, or leave this site out of the study",
        )


def smallest_pattern(limits: Limits, columns: int) -> int:
    """Minimum number of people for a missingness pattern to be reported.

    With fewer people than columns, single rows could be recovered from the products of the columns.
    """
    return max(limits.cell, math.ceil(columns / limits.share))
