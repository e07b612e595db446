"""Are the arms alike before weighting by the propensity, and after it?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from unpooled.diagnostics.table_one import standardised_difference
from unpooled.methods.looking.regressors import Regressors
from unpooled.protocol.messages import Tree


def balance(looked: Tree, found: Regressors) -> pd.DataFrame:
    """Standardised mean differences over all sites: of every covariate, and of whether a value is missing."""
    total = looked["total"]
    people = np.where(total["weight"] > 0, total["weight"], np.nan)
    weighted = total["weighted"] / people
    before, after = standardised_difference(total), standardised_difference(total, weighted)
    return pd.DataFrame({"feature": list(found.names), "before": before, "after": after})
