"""The figures. Each takes `ax=None`, draws in one style, and returns its Axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unpooled.report import style
from unpooled.report.labels import MANY, on_outcome, row_height, shortened

WIDTH = 6.4
WRITTEN = 60
"""With more rows than this a forest's numbers are not written beside it."""


def new_axes(ax: Axes | None, height: float) -> Axes:
    """The axes given, or a figure's of this height."""
    if ax is not None:
        return ax
    with mpl.rc_context(style.STYLE):
        return Figure(figsize=(WIDTH, height), layout="constrained").add_subplot()


def posterior(
    density: pd.DataFrame, summary: pd.DataFrame, *, outcome: str, unit: str = "", ax: Axes | None = None
) -> Axes:
    """The posterior of the average effect at each site and over all, each with its mean and interval.

    `density` has the columns site, effect, density; `summary` is the model's.
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
        _zero(ax)
        ax.set_yticks(range(len(names)), [_with_count(summary, name) for name in reversed(names)])
        ax.set_ylim(-0.3, len(names) + 0.05)
        ax.set_xlabel(on_outcome("average effect", outcome, unit))
        ax.set_title("Posterior of the average effect (bar: 95% interval)")
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        ax.grid(axis="x")
    return ax


def forest(summary: pd.DataFrame, *, outcome: str, unit: str = "", ax: Axes | None = None) -> Axes:
    """Mean and interval at each site and over all, with the numbers written out unless there are many."""
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
            beside: Any = {"va": "center", "fontsize": size, "transform": ax.get_yaxis_transform()}
            ax.text(1.02, place, _written(row), weight="normal" if place else "bold", **beside)
        _zero(ax)
        ax.axhline(0.5, color=style.GREY, linewidth=0.6)
        _name_rows(ax, [_with_count(summary, name, ", " if many else "\n") for name in reversed(names)])
        ax.set_ylim(-0.6, len(names) - 0.4)
        ax.set_xlabel(on_outcome("average effect", outcome, unit))
        ax.set_title("Average effect by site, 95% interval")
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x")
    return ax


def convergence(
    histories: Mapping[str, Sequence[float]],
    slopes: Mapping[str, Sequence[float]] | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """How far the objective of each structure was above where it ended; dotted, its gradient's length."""
    ax = new_axes(ax, 3.2)
    with mpl.rc_context(style.STYLE):
        for index, (name, history) in enumerate(histories.items()):
            values = np.asarray(history, dtype=float)
            end = np.min(values[np.isfinite(values)], initial=np.inf)
            above = np.where(np.isfinite(values), values, np.nan) - end  # a gap where nothing was finite yet
            ax.plot(
                np.arange(1, len(above) + 1),
                above,
                color=style.CYCLE[index % len(style.CYCLE)],
                linestyle=style.LINES[index % len(style.LINES)],
                marker=style.MARKERS[index % len(style.MARKERS)],
                markersize=3.5,
                linewidth=1.3,
                clip_on=False,
                label=f"{name} (ends at {end:,.1f})",
            )
        ax.set_yscale("symlog", linthresh=0.1)
        ax.set_ylim(bottom=0.0)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel("evaluation of the objective")
        ax.set_ylabel("above its final value (nats)")
        ax.set_title("Convergence of each structure", pad=8 + 15 * -(-len(histories) // 2))
        outside: Any = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2}
        ax.legend(ncols=2, fontsize=9, **outside)  # a curve may be anywhere inside
        ax.grid(axis="y")
        if slopes:
            _slopes(ax, slopes)
    return ax


def _slopes(ax: Axes, slopes: Mapping[str, Sequence[float]]) -> None:
    beside = ax.twinx()
    for index, lengths in enumerate(slopes.values()):
        colour = style.CYCLE[index % len(style.CYCLE)]
        beside.plot(range(1, len(lengths) + 1), lengths, color=colour, linestyle=":", linewidth=1.0)
    beside.set_yscale("log")
    beside.set_ylabel("length of the gradient (dotted)")
    beside.spines[["left", "top"]].set_visible(False)


def traffic(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Bytes by site, out of it and into it; `table` has the columns site, up, down."""
    many = len(table) >= MANY
    ax = new_axes(ax, 1.3 + (row_height(len(table)) if many else 0.42) * len(table))
    scale, unit = _byte_unit(float(table[["up", "down"]].to_numpy().max()))
    with mpl.rc_context(style.STYLE):
        places = np.arange(len(table))[::-1]
        up = ax.barh(places + 0.2, table["up"] / scale, 0.36, color=style.BLUE, label="left the site")
        down = ax.barh(
            places - 0.2,
            table["down"] / scale,
            0.36,
            color="white",
            edgecolor=style.GREY,
            hatch="" if many else "////",
            label="came to the site",
        )
        for bars in () if many else (up, down):
            ax.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
        _name_rows(ax, [shortened(site) for site in table["site"]][::-1])
        ax.set_ylim(-0.7, len(table) - 0.3)
        ax.tick_params(axis="y", length=0)
        ax.margins(x=0.12)
        ax.set_xlabel(unit)
        ax.set_title("Messages by site", pad=22)
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0.2)
        ax.grid(axis="x")
    return ax


def _name_rows(ax: Axes, names: Sequence[str]) -> None:
    """From below; many as plain text, because ticks are measured again and again."""
    if len(names) < MANY:
        ax.set_yticks(range(len(names)), names)
        return
    ax.set_yticks([])
    beside: Any = {"ha": "right", "va": "center", "fontsize": 7, "transform": ax.get_yaxis_transform()}
    for place, name in enumerate(names):
        ax.text(-0.01, place, name, **beside)


def _zero(ax: Axes) -> None:
    ax.axvline(0.0, color=style.GREY, linewidth=0.9, linestyle=(0, (4, 3)))


def _with_count(summary: pd.DataFrame, name: str, between: str = "\n") -> str:
    return f"{shortened(name)}{between}n = {int(summary.loc[name, 'n']):,}"


def _written(row: pd.Series) -> str:
    """An estimate with its interval, or that there is none."""
    if not all(np.isfinite(row[name]) for name in ("ate", "lower", "upper")):
        return "not estimated"
    return f"{row['ate']:.2f}  [{row['lower']:.2f}, {row['upper']:.2f}]".replace("-", "−")


def _byte_unit(largest: float) -> tuple[float, str]:
    for scale, unit in ((1e6, "megabytes"), (1e3, "kilobytes")):
        if largest >= scale:
            return scale, unit
    return 1.0, "bytes"
