"""Forest plots of the average effect: leave-one-site-out, and by several estimators."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from unpooled.report.figures import style
from unpooled.report.figures.style import MANY, new_axes, on_outcome, row_height, shortened, zero


def leave_one_out(
    frame: pd.DataFrame,
    *,
    estimate: float,
    lower: float,
    upper: float,
    outcome: str,
    unit: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Leave-one-site-out estimates, over a band that shows the estimate from all sites.

    `frame` has the columns site, estimate, lower, upper.
    """
    ax = new_axes(ax, 1.5 + row_height(len(frame)) * len(frame))
    with mpl.rc_context(style.STYLE):
        ax.axvline(estimate, color=style.ORANGE, linewidth=1.5, label="all sites")
        ax.axvspan(lower, upper, color=style.ORANGE, alpha=0.15, linewidth=0, label="95% interval, all sites")
        _forest(ax, frame, frame["site"].tolist(), [style.BLUE] * len(frame))
        ax.set_ylabel("excluded site")
        ax.set_xlabel(on_outcome("average effect", outcome, unit))
        ax.set_title("Leave-one-site-out estimates, 95% interval", pad=22)
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0.2)
    return ax


def comparators(
    frame: pd.DataFrame, *, outcome: str, unit: str = "", main: bool = True, ax: Axes | None = None
) -> Axes:
    """The average effect by estimator; with `main`, the first row is the study's own estimate.

    `frame` has the columns estimator, estimate, lower, upper.
    """
    ax = new_axes(ax, 1.2 + row_height(len(frame)) * len(frame))
    with mpl.rc_context(style.STYLE):
        colours = [style.ORANGE if main else style.BLUE, *[style.BLUE] * (len(frame) - 1)]
        _forest(ax, frame, frame["estimator"].tolist(), colours)
        ax.set_xlabel(on_outcome("average effect", outcome, unit))
        ax.set_title("Average effect by estimator, 95% interval")
    return ax


def _forest(ax: Axes, frame: pd.DataFrame, names: Sequence[object], colours: Sequence[str]) -> None:
    """One row per estimate, the first on top; a missing one is labelled "not estimated"."""
    size = 9.0 if len(frame) < MANY else 7.0
    places = range(len(frame))[::-1]
    rows = frame[["estimate", "lower", "upper"]].to_numpy(float)
    for place, row, colour in zip(places, rows, colours, strict=True):
        first = colour == style.ORANGE
        value, low, high = row
        ax.plot([low, high], [place, place], color=colour, linewidth=1.8)
        ax.plot(value, place, marker="D" if first else "s", markersize=0.7 * size, color=colour)
        text = "not estimated"
        if np.isfinite(row).all():
            text = f"{value:.2f}  [{low:.2f}, {high:.2f}]".replace("-", "−")
        ax.annotate(
            text, (1.02, place), xycoords=("axes fraction", "data"), va="center", fontsize=size,
            weight="bold" if first else "normal",
        )  # fmt: skip
    zero(ax)
    ax.set_yticks(list(places), [shortened(name) for name in names], fontsize=size)
    ax.set_ylim(-0.7, len(frame) - 0.3)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
