"""Density and forest plot of the average effect, by site and over all sites."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from unpooled.report.figures import style
from unpooled.report.figures.style import MANY, name_rows, new_axes, on_outcome, row_height, shortened, zero

WRITTEN = 60
"""With more rows than this, a forest plot omits the numbers beside the rows."""


def posterior(
    density: pd.DataFrame, summary: pd.DataFrame, *, outcome: str, unit: str = "", ax: Axes | None = None
) -> Axes:
    """Density of the draws of the average effect by site and over all sites, with mean and interval.

    `density` has the columns site, effect, density; `summary` is from `model.summary()`.
    """
    names = list(summary.index)
    ax = new_axes(ax, 1.4 + 0.62 * len(names))
    tallest = density["density"].max()
    with mpl.rc_context(style.STYLE):
        for place, name in enumerate(reversed(names)):
            mine = density[density["site"] == name]
            colour = style.ORANGE if name == names[-1] else style.BLUE
            height = 0.85 * mine["density"] / tallest
            ax.fill_between(mine["effect"], place, place + height, color=colour, alpha=0.3, linewidth=0)
            ax.plot(mine["effect"], place + height, color=colour, linewidth=1.2)
            lower, mean, upper = summary.loc[name, ["lower", "ate", "upper"]]
            ax.plot([lower, upper], [place, place], color=colour, linewidth=3, solid_capstyle="butt")
            ax.plot(mean, place, marker="o", markersize=5, color=colour, markeredgecolor="white")
        zero(ax)
        ax.set_yticks(range(len(names)), [_with_count(summary, name) for name in reversed(names)])
        ax.set_ylim(-0.3, len(names) + 0.05)
        ax.set_xlabel(on_outcome("average effect", outcome, unit))
        ax.set_title("Distribution of the average effect (bar: 95% interval)")
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        ax.grid(axis="x")
    return ax


def forest(summary: pd.DataFrame, *, outcome: str, unit: str = "", ax: Axes | None = None) -> Axes:
    """Forest plot: mean and interval by site and over all sites, with the numbers unless there are many."""
    names, many = list(summary.index), len(summary) >= MANY
    ax = new_axes(ax, 1.2 + (row_height(len(names)) if many else 0.36) * len(names))
    size = 7.0 if many else 9.0
    sites, (lower, mean, upper) = summary.iloc[:-1], summary.iloc[-1][["lower", "ate", "upper"]]
    places = np.arange(len(sites), 0, -1)
    with mpl.rc_context(style.STYLE):
        ax.plot([lower, upper], [0, 0], color=style.ORANGE, linewidth=1.8)
        ax.plot(mean, 0, marker="D", markersize=0.8 * size, color=style.ORANGE)
        ax.hlines(places, sites["lower"], sites["upper"], color=style.BLUE, linewidth=1.8)
        ax.scatter(sites["ate"], places, marker="s", s=(0.8 * size) ** 2, color=style.BLUE, zorder=2)
        for place, (_, row) in enumerate(summary[::-1].iterrows() if len(names) <= WRITTEN else ()):
            weight, transform = "normal" if place else "bold", ax.get_yaxis_transform()
            text = _written(row)
            ax.text(1.02, place, text, weight=weight, va="center", fontsize=size, transform=transform)
        zero(ax)
        ax.axhline(0.5, color=style.GREY, linewidth=0.6)
        name_rows(ax, [_with_count(summary, name, ", " if many else "\n") for name in reversed(names)])
        ax.set_ylim(-0.6, len(names) - 0.4)
        ax.set_xlabel(on_outcome("average effect", outcome, unit))
        ax.set_title("Average effect by site, 95% interval")
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x")
    return ax


def _with_count(summary: pd.DataFrame, name: str, between: str = "\n") -> str:
    return f"{shortened(name)}{between}n = {int(summary.loc[name, 'n']):,}"


def _written(row: pd.Series) -> str:
    """An estimate with its interval, or "not estimated"."""
    if not all(np.isfinite(row[name]) for name in ("ate", "lower", "upper")):
        return "not estimated"
    return f"{row['ate']:.2f}  [{row['lower']:.2f}, {row['upper']:.2f}]".replace("-", "−")
