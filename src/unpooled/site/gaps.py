"""What a site tells of its missing values: sums by pattern, of patterns that enough people share."""

from __future__ import annotations

import math

import numpy as np

from unpooled.data.model_matrix import encode
from unpooled.disclosure.limits import Limits, check_rows
from unpooled.maths.missing_patterns import patterns_of, suppressed
from unpooled.protocol.messages import Patterns
from unpooled.site.site import Site
from unpooled.study import Schema


def missing_patterns(site: Site, schema: Schema, centre: np.ndarray) -> Patterns:
    """Covariates, incomplete columns, treatment and outcome, about their common means."""
    check_rows(site.limits, len(site.frame))
    arrays = encode(site.frame, site.columns, schema, site=site.name)
    assert arrays.outcome is not None
    values = np.column_stack([arrays.covariates, arrays.incomplete, arrays.treatment, arrays.outcome])
    found = suppressed(patterns_of(values, np.asarray(centre)), least(site.limits, values.shape[1]))
    return Patterns(found.kept, found.patterns, found.rows)


def least(limits: Limits, columns: int) -> int:
    """Fewest people behind a pattern: products of more columns than people would show the people."""
    return max(limits.cell, math.ceil(columns / limits.share))
