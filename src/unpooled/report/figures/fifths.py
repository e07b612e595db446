"""Average effects in fifths of the people, sorted by predicted effect."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from unpooled.report.figures import style
from unpooled.report.figures.style import new_axes, on_outcome

APART = 0.12
"""Distance of the two points of a fifth."""


def slope_words(estimate: float, lower: float, upper: float) -> str:
    """The slope of the calibration with its interval, in words."""
    if not np.isfinite(estimate):
        return "all predictions are equal"
    return f"calibration slope {estimate:.2f} [{lower:.2f}, {upper:.2f}]".replace("-", "−")


def fifths(table: pd.DataFrame, slope: str, *, outcome: str, unit: str = "", ax: Axes | None = None) -> Axes:
    """The estimate in each fifth with its interval, beside the mean prediction.

    `table` has the columns predicted, effect, lower, upper, and `slope` is the calibration in words.
    """
    ax = new_axes(ax, 3.4)
    place = table.index.to_numpy(float)
    with mpl.rc_context(style.STYLE):
        ax.axhline(0.0, color=style.GREY, linewidth=0.9, linestyle=(0, (4, 3)))
        ax.vlines(place - APART, table["lower"], table["upper"], color=style.BLUE, linewidth=1.8)
        ax.plot(
            place - APART, table["effect"], color=style.BLUE, marker="o", markersize=6, linestyle="none",
            label="estimated, 95% interval",
        )  # fmt: skip
        ax.plot(
            place + APART, table["predicted"], color=style.ORANGE, marker="D", markersize=5, linestyle="none",
            label="predicted",
        )  # fmt: skip
        ax.set_xticks(place, [f"{one:.0f}" for one in place])
        ax.set_xlabel(f"fifth of people, from the smallest predicted effects to the largest\n{slope}")
        ax.set_ylabel(on_outcome("average effect", outcome, unit))
        ax.set_title("Do people with larger predicted effects have larger effects?")
        ax.legend(loc="best", fontsize=9)
        ax.grid(axis="y")
    return ax
