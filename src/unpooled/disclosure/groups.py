"""Sizes of the groups of people whose data a site's replies are computed from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from unpooled.protocol.rows import Rows
from unpooled.study import ColumnSchema, Schema


def rarest_levels(values: Mapping[str, Sequence[object]]) -> dict[str, int]:
    """Number of people with the rarest level of each categorical column, whose level names are sent.

    >>> rarest_levels({"race": ["a", "b", "a", "a"]})
    {'race': 1}
    """
    return {name: min(Counter(levels).values()) for name, levels in values.items()}


def fold_cells(rows: Rows, count: int) -> dict[str, int]:
    """Number of people by arm and fold; a fold's sums follow from the sums with and without it."""
    arm, fold = (np.asarray(part)[:count] for part in (rows.treatment, rows.fold))
    people = Counter(zip(arm.tolist(), fold.tolist(), strict=True))
    return {f"fold {f + 1} of arm {int(a)}": count for (a, f), count in people.items()}


def observed_cells(schema: Schema, incomplete: np.ndarray) -> dict[str, int]:
    """Number of observed values of each incomplete column, and of each level of its 0/1 features."""
    cells, start = {}, 0
    for column in schema.incomplete:
        values = incomplete[:, start : start + len(column.features)]
        start += len(column.features)
        seen = values[~np.isnan(values).any(axis=1)]
        if len(seen):
            cells |= {f"{column.name} (not missing)": len(seen)} | level_cells((column,), seen)
    return cells


def level_cells(columns: tuple[ColumnSchema, ...], covariates: np.ndarray) -> dict[str, int]:
    """Number of people with each value of each 0/1 feature, and with each categorical reference level."""
    people, cells, start = len(covariates), {}, 0
    for column in columns:
        ones = covariates[:, start : start + len(column.features)].sum(axis=0).astype(int)
        start += len(column.features)
        if column.kind in ("numeric", "count"):
            continue
        cells |= dict(zip(column.features, ones.tolist(), strict=True))
        cells |= {f"{name} (zeros)": people - one for name, one in zip(column.features, ones, strict=True)}
        if column.kind == "categorical":
            cells[f"{column.name} (first level)"] = people - int(ones.sum())
    return cells
