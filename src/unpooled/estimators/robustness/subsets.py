"""Subsets: refits on random subsets of each site's people should agree with the main analysis."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unpooled.data.stored_columns import column, level_names
from unpooled.estimators.robustness.analysis import Analysis
from unpooled.estimators.robustness.refit import RobustnessCheck, furthest, times

NAME = "subsets"
SHARE = 0.8
"""Share of each arm at each site that is kept."""


def subsets(analysis: Analysis) -> RobustnessCheck:
    """Compare the most extreme subset with the main analysis; chance alone gives √(1/0.8 − 1) = 0.5 sd."""
    treatment = analysis.study.columns.treatment

    def change(table: pd.DataFrame, site: str, random: np.random.Generator) -> pd.DataFrame:
        return part(table, treatment, random)

    refits = analysis.refits(NAME, change)
    main = analysis.main
    worst, moved = furthest(refits, main)
    outside = any(not main.lower <= one.estimate <= main.upper for one in refits)
    words = (
        f"Refitted {times(refits)} to a random {SHARE:.0%} of each site's people. The result is worrying "
        "if an estimate lies outside the interval of the main analysis, because it then depends on a few "
        "people. "
        f"The largest change is {moved:.2f} sd; "
        f"{'at least one estimate lies' if outside else 'no estimate lies'} outside."
    )
    return RobustnessCheck(NAME, worst.estimate, worst.lower, worst.upper, outside, words, refits)


def part(table: pd.DataFrame, treatment: str, random: np.random.Generator) -> pd.DataFrame:
    """A random share of the rows of each arm, in their original order."""
    arm = level_names(column(table, treatment))
    kept = []
    for level in sorted(set(arm)):
        people = np.flatnonzero(arm == level)
        kept.append(random.choice(people, size=int(np.ceil(SHARE * len(people))), replace=False))
    return table.iloc[np.sort(np.concatenate(kept))].reset_index(drop=True)
