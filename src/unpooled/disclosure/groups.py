"""Sizes of the groups of people whose data a site's replies are computed from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from unpooled.study import ColumnSchema, Schema


def rarest_levels(values: Mapping[str, Sequence[object]]) -> dict[str, int]:
    """Number of people with the rarest level of each categorical column, whose level names are sent.

    >>> rarest_levels({"race": ["a", "b", "a", "a"]})
    {'race': 1}
    """
    return {name: min(Counter(levels).values()) for name, levels in values.items()}


FEW_VALUES = 3
"""With this many distinct values, the number of people with each follows from a column's mean and sd."""


def value_cells(names: Sequence[str], columns: np.ndarray) -> dict[str, int]:
    """Number of people with the rarest value of each column that takes few values; NaN is a missing value.

    >>> value_cells(["a", "b"], np.array([[0.0, 1.0], [0.0, 2.5], [7.0, 3.0], [7.0, 4.0]]))
    {'a (rarest value)': 2}
    """
    found = {}
    for name, column in zip(names, columns.T, strict=True):
        values, counts = np.unique(column[~np.isnan(column)], return_counts=True)
        if 1 < len(values) <= FEW_VALUES:
            found[f"{name} (rarest value)"] = int(counts.min())
    return found


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
