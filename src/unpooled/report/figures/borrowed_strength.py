"""Heat map of borrowed strength: how much of each site's estimate comes from the other sites."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from unpooled.report.figures import style
from unpooled.report.figures.style import literal, new_axes

WRITTEN = 12
"""With more sites than this, shares are shown by colour alone."""
COLOURS = LinearSegmentedColormap.from_list("borrowed", [style.ORANGE, "white", style.BLUE])
"""White at zero; negative shares are orange."""


def borrowed(shares: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """One cell per pair of sites: the share of the row's estimate that comes from the column's data."""
    values, count = shares.to_numpy(float), len(shares)
    ax = new_axes(ax, float(np.clip(1.6 + 0.45 * count, 2.8, 6.4)))
    with mpl.rc_context(style.STYLE):
        image = ax.imshow(values, cmap=COLOURS, vmin=-1.0, vmax=1.0, aspect="auto")
        names = [literal(str(name)) for name in shares.index]
        ax.set_xticks(range(count), names, rotation=0 if count <= 6 else 90)
        ax.set_yticks(range(count), names)
        ax.set_xticks(np.arange(1, count) - 0.5, minor=True)
        ax.set_yticks(np.arange(1, count) - 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=1.5)
        ax.set_axisbelow(False)
        ax.tick_params(which="both", length=0)
        ax.spines[:].set_visible(False)
        if count <= WRITTEN:
            _write(ax, values)
        figure = ax.get_figure(root=True)
        assert figure is not None
        bar = figure.colorbar(image, ax=ax, format="{x:.0%}", shrink=0.9)
        bar.ax.set_ylim(min(0.0, float(values.min())), 1.0)
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        ax.set_xlabel("data from")
        ax.set_ylabel("estimate for")
        ax.set_title("Share of each site's estimate by source of the data")
    return ax


def _write(ax: Axes, values: np.ndarray) -> None:
    for (row, column), value in np.ndenumerate(values):
        colour = "white" if value > 0.55 else style.BLACK
        weight = "bold" if row == column else "normal"
        text = f"{value:.0%}".replace("-", "−")
        ax.text(column, row, text, ha="center", va="center", color=colour, weight=weight, fontsize=9)
