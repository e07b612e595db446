"""How a fit went: its way down, and the bytes that it cost each site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from unpooled.report.figures import style
from unpooled.report.figures.axes import name_rows, new_axes
from unpooled.report.figures.labels import MANY, row_height, shortened


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
        name_rows(ax, [shortened(site) for site in table["site"]][::-1])
        ax.set_ylim(-0.7, len(table) - 0.3)
        ax.tick_params(axis="y", length=0)
        ax.margins(x=0.12)
        ax.set_xlabel(unit)
        ax.set_title("Messages by site", pad=22)
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0.2)
        ax.grid(axis="x")
    return ax


def _byte_unit(largest: float) -> tuple[float, str]:
    for scale, unit in ((1e6, "megabytes"), (1e3, "kilobytes")):
        if largest >= scale:
            return scale, unit
    return 1.0, "bytes"
