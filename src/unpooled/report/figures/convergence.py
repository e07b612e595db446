"""Convergence plot: the objective at each evaluation, relative to its final value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from unpooled.report.figures import style
from unpooled.report.figures.style import new_axes


def convergence(
    histories: Mapping[str, Sequence[float]],
    slopes: Mapping[str, Sequence[float]] | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Each structure's objective above its smallest value, with the gradient norm as dotted lines."""
    ax = new_axes(ax, 3.2)
    with mpl.rc_context(style.STYLE):
        for index, (name, history) in enumerate(histories.items()):
            values = np.asarray(history, dtype=float)
            end = np.min(values[np.isfinite(values)], initial=np.inf)
            above = (
                np.where(np.isfinite(values), values, np.nan) - end
            )  # no line where the objective is not finite
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
        ax.set_ylabel("objective above final value (nats)")
        ax.set_title("Convergence of each structure", pad=8 + 15 * -(-len(histories) // 2))
        # Outside the axes, because a curve may be anywhere inside.
        ax.legend(ncols=2, fontsize=9, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2)
        ax.grid(axis="y")
        if slopes:
            _slopes(ax, slopes)
    return ax


def _slopes(ax: Axes, slopes: Mapping[str, Sequence[float]]) -> None:
    right = ax.twinx()
    for index, lengths in enumerate(slopes.values()):
        colour = style.CYCLE[index % len(style.CYCLE)]
        right.plot(range(1, len(lengths) + 1), lengths, color=colour, linestyle=":", linewidth=1.0)
    right.set_yscale("log")
    right.set_ylabel("gradient norm (dotted)")
    right.spines[["left", "top"]].set_visible(False)
