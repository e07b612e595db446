"""Figures of the benchmark: errors by contender and by number of sites."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from unpooled.report.figures import style
from unpooled.report.figures.style import new_axes

COLOURS = {"federated": style.ORANGE, "combined": style.BLUE, "local": style.GREY}


def by_sites(summary: pd.DataFrame, *, measure: str, series: str, ax: Axes | None = None) -> Axes:
    """Mean ± s.e. of one measure against the number of sites, one line per value of `series`."""
    ax = new_axes(ax, 3.2)
    palette = [style.ORANGE, style.BLUE, style.GREEN, style.GREY]
    with mpl.rc_context(style.STYLE):
        for place, (name, found) in enumerate(summary.groupby(series, sort=False)):
            lines = found.sort_values("sites")
            colour = COLOURS.get(str(name), palette[place % len(palette)])
            # Offset the lines so that coinciding ones stay visible.
            x = lines["sites"] + 0.04 * place
            ax.errorbar(
                x,
                lines[measure],
                yerr=lines[f"{measure}_se"],
                linestyle=style.LINES[place % 4],
                color=colour,
                marker=style.MARKERS[place % 4],
                label=str(name),
            )
        ax.set_xticks(sorted(summary["sites"].unique()))
        ax.set_ylim(bottom=0.0)
        ax.set_xlabel("number of sites")
        ax.set_ylabel(f"{measure} error (√PEHE)")
        ax.set_title("Error of predicted effects, mean ± s.e.")
        ax.legend()
        ax.grid(axis="y")
    return ax


def ranking(summary: pd.DataFrame, *, ours: str, ax: Axes | None = None) -> Axes:
    """Both errors of every contender on a logarithmic axis, the best first."""
    shown = summary.dropna(subset=["prediction"]).sort_values("prediction", ascending=False)
    ax = new_axes(ax, 1.2 + 0.27 * len(shown))
    place = np.arange(len(shown))
    colours = [style.ORANGE if str(name).startswith(ours) else style.BLUE for name in shown["contender"]]
    with mpl.rc_context(style.STYLE):
        ax.hlines(place, shown["imputation"], shown["prediction"], color=style.GREY, linewidth=0.8)
        ax.scatter(shown["prediction"], place, c=colours, zorder=3, label="prediction")
        ax.scatter(
            shown["imputation"], place, facecolors="white", edgecolors=colours, zorder=3, label="imputation"
        )
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_formatter("{x:g}")
        names = shown["contender"] + " (" + shown["arrangement"] + ")"
        ax.set_yticks(place, names.tolist())
        ax.tick_params(axis="x", which="both", labelsize=8)
        ax.set_xlabel("√PEHE")
        ax.set_title("Error of individual effects")
        ax.legend(loc="upper right")
        ax.grid(axis="x")
    return ax


def ate_by_sites(cells: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Error of the ATE by number of sites: mean and 95% interval of each replicate, minus the true ATE."""
    counts = sorted(cells["sites"].unique())
    ax = new_axes(ax, 1.4 + 0.9 * len(counts))
    with mpl.rc_context(style.STYLE):
        for place, count in enumerate(reversed(counts)):
            found = cells.loc[cells["sites"] == count].sort_values("replicate")
            heights = place + np.linspace(-0.32, 0.32, len(found))
            error = {
                name: found[name] - found["ate_truth"] for name in ("ate_95_lower", "ate", "ate_95_upper")
            }
            ax.hlines(heights, error["ate_95_lower"], error["ate_95_upper"], color=style.BLUE, linewidth=1.4)
            ax.scatter(error["ate"], heights, color=style.BLUE, s=12, zorder=3)
        ax.axvline(0.0, color=style.GREY, linewidth=1.0)
        ax.set_yticks(range(len(counts)), [_sites(count) for count in reversed(counts)])
        ax.set_xlabel("estimated minus true average effect")
        ax.set_title("Average effect by number of sites: 95% interval of each replicate")
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x")
    return ax


def _sites(count: int) -> str:
    return "1 site" if count == 1 else f"{count} sites"
