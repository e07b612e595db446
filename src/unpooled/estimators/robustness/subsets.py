"""Subsets: most of each site's people must tell what all of them tell."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unpooled.data.stored_columns import column, level_names
from unpooled.estimators.robustness.analysis import Analysis
from unpooled.estimators.robustness.refit import RobustnessCheck, furthest, times

NAME = "subsets"
SHARE = 0.8
"""Of each arm of each site."""


def subsets(analysis: Analysis) -> RobustnessCheck:
    """The subset whose estimate moved most: chance alone moves it by √(1/0.8 − 1) = 0.5 sd or so."""
    treatment = analysis.study.columns.treatment

    def change(table: pd.DataFrame, site: str, random: np.random.Generator) -> pd.DataFrame:
        return part(table, treatment, random)

    refits = analysis.again(NAME, change)
    main = analysis.main
    worst, moved = furthest(refits, main)
    outside = any(not main.lower <= one.estimate <= main.upper for one in refits)
    words = (
        f"Fitted to {SHARE:.0%} of each site's people, {times(refits)}. Worrying is a subset whose estimate "
        "lies outside the main analysis's interval: the answer then hangs on who happens to be in a table. "
        f"The furthest moved by {moved:.2f} sd{' and lies outside' if outside else ''}."
    )
    return RobustnessCheck(NAME, worst.estimate, worst.lower, worst.upper, outside, words, refits)


def part(table: pd.DataFrame, treatment: str, random: np.random.Generator) -> pd.DataFrame:
    """A share of the rows of each arm, in their old order."""
    arm = level_names(column(table, treatment))
    kept = []
    for level in sorted(set(arm)):
        people = np.flatnonzero(arm == level)
        kept.append(random.choice(people, size=int(np.ceil(SHARE * len(people))), replace=False))
    return table.iloc[np.sort(np.concatenate(kept))].reset_index(drop=True)
