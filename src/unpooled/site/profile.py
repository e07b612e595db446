"""What a site knows of its encoded table: moments, ranges and cells, merged from batches in one pass.

A table in memory is a single batch. From a profile the site answers `Summarise`, and checks its limits and a
scaling; nothing but those answers leaves it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from unpooled.data import Arrays, Batches, encode, frames
from unpooled.data.stored_columns import fits
from unpooled.disclosure.groups import MANY_VALUES, ValueCounts, level_cells, observed_cells, value_counts
from unpooled.study import ColumnRoles, Schema
from unpooled.study.family import FAMILIES


class Profile(NamedTuple):
    """One number per column in the order covariates, outcome, incomplete; missing values do not count."""

    treatment: np.ndarray
    """Who is treated, in the order of the rows."""
    features: int
    """Number of covariates in complete columns."""
    seen: np.ndarray
    mean: np.ndarray
    powers: np.ndarray
    """Sums of squared, cubed and fourth powers of deviations from the mean [3, column]."""
    lowest: np.ndarray
    highest: np.ndarray
    """Range; inf and −inf for a column without values."""
    arm_ranges: np.ndarray
    """Lowest and highest value of each covariate by arm [2, arm, feature]."""
    cross: np.ndarray
    """Products of the deviations of covariates and outcome."""
    values: tuple[ValueCounts | None, ...]
    """Number of people with each value; None for a column that takes many values."""
    cells: Counter[str]
    """Number of people with each value of each 0/1 feature, and with observed values."""
    families: frozenset[str]
    """Families that allow all outcomes."""
    weight: np.ndarray | None
    """Everybody's sampling weight, in the order of the rows; None without weights."""

    @property
    def people(self) -> int:
        return len(self.treatment)

    @property
    def largest(self) -> np.ndarray:
        """The largest absolute value of each column, 0 without values."""
        return np.maximum(0.0, np.maximum(-self.lowest, self.highest))

    @property
    def sd(self) -> np.ndarray:
        return np.sqrt(self.powers[0] / np.maximum(self.seen, 1))


def encoded(
    table: pd.DataFrame | Batches, columns: ColumnRoles, schema: Schema, *, site: str
) -> Iterator[Arrays]:
    """The batches of a table as arrays by this schema."""
    return (encode(frame, columns, schema, site=site) for frame in frames(table))


def profile(batches: Iterable[Arrays], schema: Schema) -> Profile:
    """The profile of a table from its batches."""
    return _merged([_of_batch(arrays, schema) for arrays in batches])


def _of_batch(arrays: Arrays, schema: Schema) -> Profile:
    assert arrays.outcome is not None
    complete = np.column_stack([arrays.covariates, arrays.outcome])
    values = np.column_stack([complete, arrays.incomplete])
    known = ~np.isnan(values)
    seen = known.sum(axis=0)
    mean = np.where(known, values, 0.0).sum(axis=0) / np.maximum(seen, 1)
    deviation = np.where(known, values - mean, 0.0)
    squares = deviation**2
    arms = [arrays.covariates[arrays.treatment == arm] for arm in (0.0, 1.0)]
    centred = deviation[:, : complete.shape[1]]
    return Profile(
        treatment=arrays.treatment == 1.0,
        features=arrays.covariates.shape[1],
        seen=seen,
        mean=mean,
        powers=np.stack([squares.sum(axis=0), (squares * deviation).sum(axis=0), (squares**2).sum(axis=0)]),
        lowest=np.where(known, values, np.inf).min(axis=0),
        highest=np.where(known, values, -np.inf).max(axis=0),
        arm_ranges=np.array(
            [
                [arm.min(axis=0, initial=np.inf) for arm in arms],
                [arm.max(axis=0, initial=-np.inf) for arm in arms],
            ]
        ),
        cross=centred.T @ centred,
        values=tuple(map(value_counts, values.T)),
        cells=Counter(
            level_cells(schema.covariates, arrays.covariates, arrays.gaps)
            | observed_cells(schema, arrays.incomplete)
        ),
        families=frozenset(family for family in FAMILIES if fits(arrays.outcome, family).all()),
        weight=arrays.weight,
    )


def _merged(parts: Sequence[Profile]) -> Profile:
    """The profile of all batches together: deviations are moved from each batch's mean to the common one."""
    seen, mean, powers = (
        np.array([getattr(part, name) for part in parts]) for name in ("seen", "mean", "powers")
    )
    total = seen.sum(axis=0)
    common = (seen * mean).sum(axis=0) / np.maximum(total, 1)
    shift = np.where(seen > 0, mean - common, 0.0)
    squares, cubes, fourths = np.moveaxis(powers, 1, 0)
    first, width = parts[0], len(parts[0].cross)
    between = (seen * shift)[:, :width]
    return Profile(
        treatment=np.concatenate([part.treatment for part in parts]),
        features=first.features,
        seen=total,
        mean=common,
        powers=np.stack(
            [
                np.sum(squares + seen * shift**2, axis=0),
                np.sum(cubes + 3.0 * shift * squares + seen * shift**3, axis=0),
                np.sum(fourths + 4.0 * shift * cubes + 6.0 * shift**2 * squares + seen * shift**4, axis=0),
            ]
        ),
        lowest=np.min([part.lowest for part in parts], axis=0),
        highest=np.max([part.highest for part in parts], axis=0),
        arm_ranges=np.stack(
            [
                np.min([part.arm_ranges[0] for part in parts], axis=0),
                np.max([part.arm_ranges[1] for part in parts], axis=0),
            ]
        ),
        cross=np.sum([part.cross for part in parts], axis=0) + between.T @ shift[:, :width],
        values=tuple(_added(counts) for counts in zip(*(part.values for part in parts), strict=True)),
        cells=_total([part.cells for part in parts]),
        families=frozenset.intersection(*(part.families for part in parts)),
        weight=None
        if first.weight is None
        else np.concatenate([part.weight for part in parts if part.weight is not None]),
    )


def _added(parts: Sequence[ValueCounts | None]) -> ValueCounts | None:
    """People by value in all batches; None if one of them has, or all have together, many values."""
    total: Counter[float] = Counter()
    for part in parts:
        if part is None:
            return None
        total.update(part)
    return total if len(total) <= MANY_VALUES else None


def _total(parts: Sequence[Counter[str]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for part in parts:
        found.update(part)
    return found
