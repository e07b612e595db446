"""Codes that may stand for a missing value: pointed out, never guessed."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unpooled.data.kinds import numbers, stored_as

CODES = (-9.0, -99.0, -999.0, -9999.0, 9.0, 99.0, 999.0, 9999.0, -1.0, -8.0, -88.0)
OFTEN = 3
"""Fewest times that a code must occur."""
FAR = 1.5
"""The gap before a code, times this, exceeds the range of all other values."""


def sentinel(series: pd.Series) -> tuple[float, int] | None:
    """A code at the end of the column, far from the other values, and how often it occurs.

    >>> sentinel(pd.Series([21.5, 30.0, 999, 27.1, 999, 25.0, 999, 24.2]))
    (999.0, 3)
    """
    if stored_as(series) != "numbers":
        return None
    values = numbers(series)
    values = values[~np.isnan(values)]
    for code in CODES:
        count, others = int(np.sum(values == code)), values[values != code]
        if count < OFTEN or len(others) < 2:
            continue
        gap = others.min() - code if code < others.min() else code - others.max()
        if 0.0 < np.ptp(others) < FAR * gap:
            return code, count
    return None
