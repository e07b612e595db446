"""The figure of the average effect were missing values larger or smaller."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes

from unpooled.report.figures import style
from unpooled.report.figures.axes import new_axes
from unpooled.report.figures.labels import literal


def curve(
    found: pd.DataFrame, tipping: dict[str, float | None], *, column: str, ax: Axes | None = None
) -> Axes:
    """ATE(δ) with its interval; a dotted line where the interval begins or ceases to hold 0."""
    ax = new_axes(ax, 3.4)
    with mpl.rc_context(style.STYLE):
        ax.fill_between(
            found["size"], found["lower"], found["upper"], color=style.BLUE, alpha=0.2, linewidth=0
        )
        ax.plot(found["size"], found["ate"], color=style.BLUE, marker="o", markersize=4)
        main = found[found["size"] == 0.0]
        ax.plot(main["size"], main["ate"], color=style.ORANGE, marker="o", markersize=7, linestyle="none")
        ax.axhline(0.0, color=style.GREY, linewidth=0.8)
        for size in tipping.values():
            if size is not None:
                ax.axvline(size, color=style.ORANGE, linewidth=1.2, linestyle=":")
                ax.annotate(
                    f"tips at {size:+.2g}", (size, 1.0), xycoords=("data", "axes fraction"), xytext=(3, -3),
                    textcoords="offset points", va="top", fontsize=8, color=style.ORANGE,
                )  # fmt: skip
        ax.set_xlabel(literal(f"shift δ of missing values of {column} (0: missing at random)"))
        ax.set_ylabel("average effect")
        ax.set_title("If values are not missing at random (band: 95% interval)")
        ax.grid(axis="y")
    return ax
