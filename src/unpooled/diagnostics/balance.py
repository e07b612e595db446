"""Are the arms alike before weighting by the propensity, and after it?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from unpooled.diagnostics.table_one import standardised_difference, told_of_all
from unpooled.methods.diagnostics.balance import Regressors
from unpooled.methods.diagnostics.rounds import DiagnosticStatistics


def balance(statistics: DiagnosticStatistics, found: Regressors, widths: Sequence[int]) -> pd.DataFrame:
    """Standardised mean differences over all sites: of every covariate, and of whether a value is missing.

    Before weighting, a flag's tells how many carry it: it is empty where they are few.
    """
    total = statistics.summed
    people = np.where(total["weight"] > 0, total["weight"], np.nan)
    weighted = total["weighted"] / people
    before, after = standardised_difference(total), standardised_difference(total, weighted)
    before = np.where(told_of_all(statistics, found, widths), before, np.nan)
    return pd.DataFrame({"feature": list(found.names), "before": before, "after": after})
