"""What a site tells about the people whom a study of complete cases leaves out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pandas as pd

from unpooled.data import encode, frames
from unpooled.data.stored_columns import column, level_counts, level_names, stored_as
from unpooled.disclosure.limits import Limits, smallest_pattern
from unpooled.disclosure.protection import protect
from unpooled.protocol.table_messages import LeftOutForGaps
from unpooled.site.site import Site
from unpooled.study import Schema


def left_out_for_gaps(site: Site, schema: Schema, centre: np.ndarray) -> LeftOutForGaps:
    """How many there are by arm, and sums of their deviations from the means of the others.

    With limits, small numbers are not told, and sums only of enough people in both arms, none of whom
    dominates.
    """
    complete = [one for one in schema.covariates if one.name in site.columns.covariates]
    # Levels that nobody has who stays in the study are not known: as missing values.
    as_incomplete = schema.model_copy(update={"covariates": (), "incomplete": tuple(complete)})
    counts = Counter[str]()
    people, total = np.zeros(len(centre)), np.zeros(len(centre))
    for frame in _known_levels(site, as_incomplete):
        arms = level_counts(column(frame, site.columns.treatment))
        counts.update(arms)
        arrays = encode(frame, site.columns, as_incomplete, site=site.name)
        assert arrays.outcome is not None
        values = np.column_stack([arrays.incomplete, arrays.treatment, arrays.outcome])
        values = _protected(values, [arms[schema.control], arms[schema.treated]], site.limits)
        people += np.sum(~np.isnan(values), axis=0)
        total += np.nansum(values - centre, axis=0)
    told = {arm: counts[arm] for arm in (schema.control, schema.treated)}
    hidden = {arm: None if 0 < count < site.limits.cell else count for arm, count in told.items()}
    return LeftOutForGaps(hidden, {"people": people, "total": total})


def _known_levels(site: Site, schema: Schema) -> Iterator[pd.DataFrame]:
    categories = {one.name: one.levels for one in schema.incomplete if one.kind == "categorical"}
    for frame in () if site.incomplete is None else frames(site.incomplete):
        if len(frame) == 0:
            continue
        known = {
            name: column(frame, name).where(np.isin(level_names(column(frame, name)).astype(str), levels))
            for name, levels in categories.items()
            if stored_as(column(frame, name)) == "text"
        }
        yield frame.assign(**known)


def _protected(values: np.ndarray, arms: list[int], limits: Limits) -> np.ndarray:
    """The values as they may be added up; NaN for those that may not."""
    if not limits.cell:
        return values
    enough = smallest_pattern(limits, values.shape[1])
    if len(values) < enough or any(0 < count < limits.cell for count in arms):
        return np.full_like(values, np.nan)
    found = protect(values, np.ones((1, len(values)), bool), limits.cell)
    return np.where(found.left_out, np.nan, found.values)
