"""Outcomes without the effect that was found: what a placebo starts from.

Left in, the effect would show after shuffling: where a stratum has more treated people than its propensity
says, by chance, its outcomes are larger, and it still has more treated people.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from unpooled.data.stored_columns import column, level_names, numbers
from unpooled.study import ColumnRoles


def without_effect(
    table: pd.DataFrame, columns: ColumnRoles, treated: str, effect: float, random: np.random.Generator
) -> pd.DataFrame:
    """A copy in which treated people's outcomes are, on average, smaller by the effect."""
    outcome = numbers(column(table, columns.outcome)).copy()
    arm = level_names(column(table, columns.treatment)) == treated
    lowered = {"continuous": _subtracted, "binary": _flipped, "count": _thinned}[columns.family]
    outcome[arm] = lowered(outcome[arm], effect, random)
    return table.assign(**{columns.outcome: outcome})


def _subtracted(values: np.ndarray, effect: float, random: np.random.Generator) -> np.ndarray:
    return values - effect


def _flipped(values: np.ndarray, effect: float, random: np.random.Generator) -> np.ndarray:
    """0/1: as many of the ones, or of the zeros, change as it takes."""
    rate = values.mean() if effect > 0.0 else 1.0 - values.mean()
    changing = (values == float(effect > 0.0)) & (random.random(len(values)) * rate < abs(effect))
    return np.where(changing, 1.0 - values, values)


def _thinned(values: np.ndarray, effect: float, random: np.random.Generator) -> np.ndarray:
    """Counts: every event is kept with one probability, or events are added."""
    if effect <= 0.0:
        return values + random.poisson(-effect, len(values))
    kept = max(0.0, 1.0 - effect / max(values.mean(), effect))
    return random.binomial(values.astype(int), kept).astype(float)
