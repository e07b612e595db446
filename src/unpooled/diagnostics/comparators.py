"""Simpler estimates of the same average effect, from the same rounds."""

from __future__ import annotations

from typing import Any

import pandas as pd

from unpooled.diagnostics.heterogeneity import with_interval
from unpooled.methods.diagnostics.rounds import DiagnosticStatistics

NAMES = {
    "difference": "unadjusted difference",
    "ipw": "inverse propensity weighting",
    "aipw": "doubly robust (AIPW)",
}


def comparators(statistics: DiagnosticStatistics, scale: float, pooled: dict[str, Any]) -> pd.DataFrame:
    """estimator, estimate, standard_error, lower, upper."""
    rows = [(name, *(scale * number for number in getattr(statistics, key))) for key, name in NAMES.items()]
    for effects in ("fixed", "random") if pooled else ():
        one = pooled[effects]
        rows.append((f"meta-analysis, {effects} effects", one["estimate"], one["standard_error"]))
    return with_interval(pd.DataFrame(rows, columns=["estimator", "estimate", "standard_error"]))
