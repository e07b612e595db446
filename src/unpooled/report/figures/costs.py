"""What a fit costs as its study grows, on logarithmic axes, with the slope said."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from unpooled.report.figures import style
from unpooled.report.figures.axes import new_axes

MEASURES = {"warm_seconds": "seconds", "megabytes": "megabytes out of a site", "peak_gb": "peak memory (GB)"}


def slope(size: np.ndarray, cost: np.ndarray) -> float:
    """The exponent between the two largest sizes: doubling the size multiplies the cost by 2^slope.

    >>> round(slope(np.array([10.0, 100.0, 1000.0]), np.array([5.0, 7.0, 70.0])), 2)
    1.0
    """
    return float(np.diff(np.log(cost[-2:]))[0] / np.diff(np.log(size[-2:]))[0])


def cost_curve(points: pd.DataFrame, *, growing: str, ax: Axes | None = None) -> Axes:
    """Seconds, bytes and memory against one size; the legend names each line's final slope."""
    ax = new_axes(ax, 3.4)
    found = points.sort_values(growing)
    size = found[growing].to_numpy(float)
    with mpl.rc_context(style.STYLE):
        for place, (name, words) in enumerate(MEASURES.items()):
            cost = found[name].to_numpy(float)
            label = f"{words}: slope {slope(size, cost):.2f}"
            look = (style.CYCLE[place], style.MARKERS[place], style.LINES[place])
            ax.plot(size, cost, color=look[0], marker=look[1], linestyle=look[2], label=label)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel(f"{growing} per site" if growing == "rows" else growing)
        ax.set_title("Cost of a warm fit; slopes between the two largest")
        ax.set_xticks(size)  # the sizes that were measured, and no others between
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter("{x:,.0f}")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        ax.grid()
    return ax
