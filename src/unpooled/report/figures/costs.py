"""The cost of a fit: how it grows with the size of the study, and the bytes exchanged with each site."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from unpooled.report.figures import style
from unpooled.report.figures.style import MANY, name_rows, new_axes, row_height, shortened

MEASURES = {"warm_seconds": "seconds", "megabytes": "megabytes sent per site", "peak_gb": "peak memory (GB)"}


def slope(size: np.ndarray, cost: np.ndarray) -> float:
    """The log–log slope between the two largest sizes: doubling the size multiplies the cost by 2^slope.

    >>> round(slope(np.array([10.0, 100.0, 1000.0]), np.array([5.0, 7.0, 70.0])), 2)
    1.0
    """
    return float(np.diff(np.log(cost[-2:]))[0] / np.diff(np.log(size[-2:]))[0])


def cost_curve(points: pd.DataFrame, *, growing: str, ax: Axes | None = None) -> Axes:
    """Seconds, bytes and memory against one size, with the final slope of each line in the legend."""
    ax = new_axes(ax, 3.4)
    found = points.sort_values(growing)
    size = found[growing].to_numpy(float)
    with mpl.rc_context(style.STYLE):
        for place, (name, words) in enumerate(MEASURES.items()):
            cost = found[name].to_numpy(float)
            label = f"{words}: slope {slope(size, cost):.2f}"
            drawn = (style.CYCLE[place], style.MARKERS[place], style.LINES[place])
            ax.plot(size, cost, color=drawn[0], marker=drawn[1], linestyle=drawn[2], label=label)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel(f"{growing} per site" if growing == "rows" else growing)
        ax.set_title("Cost of a warm fit (slopes between the two largest sizes)")
        ax.set_xticks(size)  # only the measured sizes
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter("{x:,.0f}")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        ax.grid()
    return ax


def traffic(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Bytes sent and received by each site; `table` has the columns site, up, down."""
    many = len(table) >= MANY
    ax = new_axes(ax, 1.3 + (row_height(len(table)) if many else 0.42) * len(table))
    scale, unit = _byte_unit(float(table[["up", "down"]].to_numpy().max()))
    with mpl.rc_context(style.STYLE):
        places = np.arange(len(table))[::-1]
        up = ax.barh(places + 0.2, table["up"] / scale, 0.36, color=style.BLUE, label="sent by the site")
        down = ax.barh(
            places - 0.2,
            table["down"] / scale,
            0.36,
            color="white",
            edgecolor=style.GREY,
            hatch="" if many else "////",
            label="received by the site",
        )
        for bars in () if many else (up, down):
            ax.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
        name_rows(ax, [shortened(site) for site in table["site"]][::-1])
        ax.set_ylim(-0.7, len(table) - 0.3)
        ax.tick_params(axis="y", length=0)
        ax.margins(x=0.12)
        ax.set_xlabel(unit)
        ax.set_title("Traffic by site", pad=22)
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0.2)
        ax.grid(axis="x")
    return ax


def _byte_unit(largest: float) -> tuple[float, str]:
    for scale, unit in ((1e6, "megabytes"), (1e3, "kilobytes")):
        if largest >= scale:
            return scale, unit
    return 1.0, "bytes"
