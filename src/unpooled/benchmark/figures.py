"""The figures of a table's finished cells, each beside the CSV it was drawn from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from unpooled.benchmark.comparison import in_common, summarise
from unpooled.benchmark.tables import Table
from unpooled.report.drawing import keep
from unpooled.report.figures import comparisons


def write_figures(cells: pd.DataFrame, folder: Path, table: Table) -> list[Path]:
    """Whatever the cells allow; the paths of the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    done = cells.loc[pd.isna(cells["error"])]
    summary = summarise(done)
    if "prediction" not in done:
        return []
    drawn = []
    for name, part, series in (
        ("arrangements", summary.loc[summary["contender"] == table.method], "arrangement"),
        ("inter-dependency", _federated(summary, table.method), "contender"),
    ):
        if len(set(part[series])) > 1:
            ax = comparisons.by_sites(part, measure="prediction", series=series)
            drawn.append(keep(ax, part, folder / f"{table.name}-{name}.png"))
    fair = summarise(in_common(done))
    most = fair.loc[fair["sites"] == fair["sites"].max()]
    pooled = most.loc[(most["arrangement"] == "combined") | (most["arrangement"] == "federated")]
    drawn.append(
        keep(comparisons.ranking(pooled, ours=table.method), pooled, folder / f"{table.name}-ranking.png")
    )
    ours = done.loc[(done["contender"] == table.method) & _apart(done)]
    if len(ours):
        drawn.append(keep(comparisons.ate_by_sites(ours), ours, folder / f"{table.name}-ate.png"))
    return drawn


def _federated(summary: pd.DataFrame, method: str) -> pd.DataFrame:
    ours = [str(name).startswith(method) for name in summary["contender"]]
    return summary.loc[_apart(summary) & np.array(ours)]


def _apart(frame: pd.DataFrame) -> np.ndarray:
    return np.asarray(frame["arrangement"] == "federated")
