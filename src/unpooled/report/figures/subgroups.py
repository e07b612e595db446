"""Forest plot of the average effect by subgroup."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from unpooled.report.figures import style
from unpooled.report.figures.style import name_rows, new_axes, on_outcome, shortened, zero
from unpooled.report.numbers import form_of

KEY = "thick: 95% interval of a group, thin: of all groups together; vertical: everybody"
"""What the lines are."""


def subgroups(
    table: pd.DataFrame, overall: float, *, outcome: str, unit: str = "", ax: Axes | None = None
) -> Axes:
    """Effect of each subgroup with its interval (thick) and its simultaneous interval (thin).

    `table` has the columns by, group, n, effect, lower, upper, simultaneous_lower and simultaneous_upper;
    the line at `overall` is the average effect of everybody. A line separates groups of different columns.
    """
    places = np.arange(len(table), 0, -1) - 1
    first = table.iloc[0]
    form = form_of(float(first["lower"]), float(first["upper"]))
    ax = new_axes(ax, 1.3 + 0.36 * len(table))
    with mpl.rc_context(style.STYLE):
        ax.axvline(overall, color=style.ORANGE, linewidth=1.2)
        zero(ax)
        together = table["simultaneous_lower"], table["simultaneous_upper"]
        ax.hlines(places, *together, color=style.BLUE, linewidth=1.0)
        ax.hlines(places, table["lower"], table["upper"], color=style.BLUE, linewidth=3.2)
        ax.scatter(table["effect"], places, marker="s", s=42, color=style.BLUE, zorder=2)
        transform = ax.get_yaxis_transform()
        for place, row in zip(places, table.to_dict("records"), strict=True):
            ax.text(1.02, float(place), _written(row, form), va="center", fontsize=9, transform=transform)
        for place in np.flatnonzero(table["by"].to_numpy()[1:] != table["by"].to_numpy()[:-1]):
            ax.axhline(places[place] - 0.5, color=style.GREY, linewidth=0.5)
        names = [f"{shortened(row['group'])}, n = {row['n']:,}" for row in table.to_dict("records")]
        name_rows(ax, names[::-1])
        ax.set_ylim(-0.6, len(table) - 0.4)
        ax.set_xlabel(f"{on_outcome('average effect', outcome, unit)}\n{KEY}")
        ax.set_title("Average effect by subgroup")
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x")
        ax.locator_params(axis="x", nbins=5)
    return ax


def _written(row: dict[str, float], form: str) -> str:
    numbers = [row[name] for name in ("effect", "lower", "upper")]
    if not np.isfinite(numbers).all():
        return "not estimated"
    effect, lower, upper = (format(value, form) for value in numbers)
    return f"{effect}  [{lower}, {upper}]".replace("-", "−")
