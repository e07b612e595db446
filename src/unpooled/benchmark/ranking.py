"""Data sets side by side: how contenders rank over them, and how far each is from the best.

Means over data sets need one unit: errors and widths are divided by the sd of the data set's untreated
outcomes. The best is the best contender that does not combine others (`Contender.combines`), so that a
combination can be better than the best.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from unpooled.benchmark.comparison import in_common
from unpooled.benchmark.contenders import CONTENDERS

NEAR = 1.1
"""A contender is near the best where its error is at most 10 % larger."""
VIEW = "data-sets"
_WHO, _WHERE = ["contender", "arrangement"], ["sites", "replicate"]
_UNIT = "outcome_sd"
_IN_UNITS = {
    "error": "prediction",
    "error, training": "in_sample_prediction",
    "ATE error": "in_sample_ate_error",
    "CATE width": "cate_95_width",
    "ATE width": "ate_95_width",
}
_AS_THEY_ARE = {
    "CATE covers": "cate_95_coverage",
    "ATE covers": "ate_95_coverage",
    "CPU seconds": "cpu_seconds",
}


def errors(cells: pd.DataFrame, measure: str = "prediction") -> pd.DataFrame:
    """A measure of finished cells, with one row per data set and one column per contender."""
    done = cells.loc[pd.isna(cells["error"])]
    return done.pivot(index=_WHERE, columns=_WHO, values=measure).astype(float)


def relative(found: pd.DataFrame) -> pd.DataFrame:
    """Errors divided by that of the best contender of the data set that does not combine others."""
    single = [name for name in found.columns if not CONTENDERS[name[0]].combines]
    return found.div(found[single].min(axis=1), axis=0)


def ranked(cells: pd.DataFrame) -> pd.DataFrame:
    """One row per contender, the lowest mean rank first, over the data sets that all have finished.

    NaN where a contender has no such measure.
    """
    cells = in_common(cells)
    found = errors(cells)
    ratios = relative(found)
    units = errors(cells, _UNIT).max(axis=1)
    summary = pd.DataFrame(
        {
            "data sets": found.notna().sum(),
            "mean rank": found.rank(axis=1).mean(),
            "ratio to the best": np.exp(np.log(ratios).mean()),
            "median ratio": ratios.median(),
            "near the best": (ratios <= NEAR).mean(),
        }
    )
    for name, measure in _IN_UNITS.items():
        if measure in cells:
            summary[name] = errors(cells, measure).div(units, axis=0).mean()
    for name, measure in _AS_THEY_ARE.items():
        if measure in cells:
            summary[name] = errors(cells, measure).mean()
    return summary.sort_values(["mean rank", "ratio to the best"])


def ranking_table(cells: pd.DataFrame) -> str:
    """The summary over data sets as a Markdown table."""
    summary = ranked(cells)
    return _markdown(["contender", "tables", *summary.columns], summary)


def error_table(cells: pd.DataFrame, names: Sequence[str]) -> str:
    """√PEHE of new people by data set as a Markdown table, empty where a contender has not finished.

    `names` are the replicates' names. Contenders are in the order of their mean ranks.
    """
    found = errors(cells)
    found = found.loc[:, found.rank(axis=1).mean().sort_values(kind="stable").index]
    found.columns = [_named(*who) for who in found.columns]
    found.index = [_data_set(names, *where) for where in found.index]
    return _markdown(["data set", *found.columns], found)


def _named(contender: str, arrangement: str) -> str:
    """A contender, with its arrangement unless that is the usual one.

    >>> _named("ridge", "combined"), _named("fedci", "federated"), _named("fedci", "combined")
    ('ridge', 'fedci', 'fedci, combined')
    """
    usual = "federated" if "federated" in CONTENDERS[contender].arrangements else "combined"
    return contender if arrangement == usual else f"{contender}, {arrangement}"


def _data_set(names: Sequence[str], sites: int, replicate: int) -> str:
    return names[replicate - 1] if names else f"replicate {replicate}, {sites} sites"


def _markdown(heads: Sequence[str], frame: pd.DataFrame) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for key, values in zip(frame.index, frame.to_numpy(float), strict=True):
        who = key if isinstance(key, tuple) else (key,)
        shown = [_shown(name, value) for name, value in zip(frame.columns, values, strict=True)]
        lines.append("| " + " | ".join([*map(str, who), *shown]) + " |")
    return "\n".join(lines)


def _shown(name: str, value: float) -> str:
    if np.isnan(value):
        return ""
    return f"{value:.0f}" if name == "data sets" else f"{value:.2f}"
