"""Estimates with standard errors as a table, read from a fit's diagnostics: nothing rests on draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from unpooled.coordinator.result import StudyResult


def estimates_table(
    result: StudyResult, others: Mapping[str, Mapping[str, Any]], alpha: float
) -> pd.DataFrame:
    """One row per site, then the others by name: estimate, standard error and normal interval."""
    sites = result.fit_diagnostics["sites"]
    estimate, error = (
        np.append(sites[name].values, [one[name] for one in others.values()])
        for name in ("estimate", "standard_error")
    )
    reach = ndtri(1.0 - alpha / 2.0) * error
    columns = {
        "estimate": estimate,
        "standard_error": error,
        "lower": estimate - reach,
        "upper": estimate + reach,
    }
    return pd.DataFrame(columns, index=pd.Index([*result.sites, *others], name="site"))
