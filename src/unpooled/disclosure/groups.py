"""The groups of people behind what a site sends, and how many people each holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from unpooled.protocol.rows import Rows
from unpooled.study import ColumnSchema, Schema


def rarest_levels(values: Mapping[str, Sequence[object]]) -> dict[str, int]:
    """How many people carry the rarest level of each categorical column: the names of levels are sent.

    >>> rarest_levels({"race": ["a", "b", "a", "a"]})
    {'race': 1}
    """
    return {name: min(Counter(levels).values()) for name, levels in values.items()}


def fold_cells(rows: Rows, count: int) -> dict[str, int]:
    """People by arm and fold: the sums of a fold are those of everybody less those without the fold."""
    arm, fold = (np.asarray(part)[:count] for part in (rows.treatment, rows.fold))
    people = Counter(zip(arm.tolist(), fold.tolist(), strict=True))
    return {f"fold {f + 1} of arm {int(a)}": count for (a, f), count in people.items()}


def observed_cells(schema: Schema, incomplete: np.ndarray) -> dict[str, int]:
    """People behind each incomplete column's sums, and behind its values where they are few."""
    cells, start = {}, 0
    for column in schema.incomplete:
        values = incomplete[:, start : start + len(column.features)]
        start += len(column.features)
        seen = values[~np.isnan(values).any(axis=1)]
        if len(seen):
            cells |= {f"{column.name} (not missing)": len(seen)} | level_cells((column,), seen)
    return cells


def level_cells(columns: tuple[ColumnSchema, ...], covariates: np.ndarray) -> dict[str, int]:
    """People behind each value of each 0/1 feature, and behind a categorical column's reference level."""
    people, cells, start = len(covariates), {}, 0
    for column in columns:
        ones = covariates[:, start : start + len(column.features)].sum(axis=0).astype(int)
        start += len(column.features)
        if column.kind in ("numeric", "count"):
            continue
        cells |= dict(zip(column.features, ones.tolist(), strict=True))
        cells |= {f"{name} (zeros)": people - one for name, one in zip(column.features, ones, strict=True)}
        if column.kind == "categorical":
            cells[f"{column.name} (its first level)"] = people - int(ones.sum())
    return cells
