"""The Love plot: standardised mean difference of every covariate, before and after weighting."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from unpooled.report.figures import style
from unpooled.report.figures.style import new_axes, row_height, shortened

MOST = 40
"""With more features than this, only those with the largest differences are shown."""


def love(balance: pd.DataFrame, *, threshold: float = 0.1, ax: Axes | None = None) -> Axes:
    """Absolute standardised mean differences, with the largest before weighting on top.

    `balance` has the columns feature, before, after; its differences may be signed.
    """
    known = balance.dropna(subset=["before", "after"], how="all")
    shown = _largest(known)
    height = row_height(len(shown))
    ax = new_axes(ax, 1.6 + height * len(shown))
    size = 9.0 if height > 0.2 else 7.0
    with mpl.rc_context(style.STYLE):
        places = np.arange(len(shown))
        ax.hlines(places, shown["before"], shown["after"], color=style.GREY, linewidth=0.8)
        drawn = {"s": 4.0 * size, "zorder": 3, "clip_on": False}
        ax.scatter(
            shown["before"], places, facecolors="white", edgecolors=style.ORANGE, marker="o",
            linewidths=1.4, label="before weighting", **drawn,
        )  # fmt: skip
        ax.scatter(shown["after"], places, color=style.BLUE, marker="D", label="after weighting", **drawn)
        ax.axvline(
            threshold,
            color=style.GREY,
            linewidth=1.1,
            linestyle=(0, (4, 3)),
            label=f"threshold {threshold:g}",
        )
        ax.set_yticks(places, [shortened(name) for name in shown["feature"]], fontsize=size)
        ax.set_ylim(-0.7, len(shown) - 0.3)
        ax.set_xlim(0.0, 1.05 * max(1.2 * threshold, np.nanmax(shown[["before", "after"]], initial=0.0)))
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("absolute standardised mean difference")
        ax.set_title(_title(len(known), len(shown)), pad=22)
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, borderaxespad=0.2, fontsize=9)
        ax.grid(axis="x")
    return ax


def _largest(balance: pd.DataFrame) -> pd.DataFrame:
    """Absolute differences of the features shown, with the largest before weighting last."""
    sizes = balance.assign(before=balance["before"].abs(), after=balance["after"].abs())
    largest = sizes[["before", "after"]].max(axis=1).nlargest(MOST).index
    return sizes.loc[largest].sort_values("before", kind="stable", na_position="first")


def _title(known: int, shown: int) -> str:
    return f"Balance: {shown} largest of {known} differences" if shown < known else "Covariate balance"
