"""Heat map of the share of missing values by site and column."""

from __future__ import annotations

import textwrap

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from unpooled.report.figures import style
from unpooled.report.figures.style import new_axes, row_height, shortened

WRITTEN = 12
"""With more columns than this, shares are shown by colour alone."""
WITHHELD = "grey: withheld (few people)"
PATTERNS = 4
"""How many patterns are listed."""
COLOURS = LinearSegmentedColormap.from_list("missing", ["#F4F8FB", style.BLUE]).with_extremes(bad="#CCCCCC")


def missing(shares: pd.DataFrame, patterns: pd.DataFrame | None = None, *, ax: Axes | None = None) -> Axes:
    """Share missing by site (row) and column, all sites last, with the most frequent patterns below.

    Both frames come from `unpooled.diagnostics.missingness`; withheld shares are NaN.
    """
    values, (rows, columns) = shares.to_numpy(float), shares.shape
    height = row_height(rows)
    names = [shortened(name) for name in shares.columns]
    upright = columns * max(map(len, names)) > 48
    ax = new_axes(ax, 1.3 + height * rows + (0.075 * max(map(len, names)) if upright else 0.0))
    size = 9.0 if height > 0.2 else 7.0
    with mpl.rc_context(style.STYLE):
        image = ax.imshow(values, cmap=COLOURS, vmin=0.0, vmax=1.0, aspect="auto")
        ax.set_xticks(range(columns), names, rotation=90 if upright else 0, fontsize=9)
        ax.set_yticks(range(rows), [shortened(name) for name in shares.index], fontsize=size)
        ax.set_xticks(np.arange(1, columns) - 0.5, minor=True)
        ax.set_yticks(np.arange(1, rows) - 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=1.0)
        ax.axhline(rows - 1.5, color=style.BLACK, linewidth=1.2)
        ax.set_axisbelow(False)
        ax.tick_params(which="both", length=0)
        ax.spines[:].set_visible(False)
        if columns <= WRITTEN:
            _write(ax, values, size)
        else:
            figure = ax.get_figure(root=True)
            assert figure is not None
            figure.colorbar(image, ax=ax, format="{x:.0%}", shrink=min(0.9, 16 / rows), anchor=(0.0, 1.0))
        notes = [WITHHELD] if np.isnan(values).any() else []
        notes += [] if patterns is None or patterns.empty else [_frequent(patterns)]
        ax.set_xlabel("\n".join(notes), fontsize=9, labelpad=8)
        ax.set_title("Share of missing values")
    return ax


def _write(ax: Axes, values: np.ndarray, size: float) -> None:
    for (row, column), value in np.ndenumerate(values):
        colour = "white" if value > 0.85 else style.BLACK
        weight = "bold" if row == len(values) - 1 else "normal"
        text = "–" if np.isnan(value) else f"{value:.0%}"
        ax.text(column, row, text, ha="center", va="center", color=colour, weight=weight, fontsize=size)


def _frequent(patterns: pd.DataFrame) -> str:
    """The most frequent patterns as text."""
    top = patterns.nlargest(PATTERNS, "rows")
    texts = [
        f"{shortened(name, 48)}\u00a0({rows:,})"
        for name, rows in zip(top["missing"], top["rows"], strict=True)
    ]
    rest = len(patterns) - len(top)
    texts += [f"and {rest} more"] * bool(rest)
    return textwrap.fill("missing together (people): " + "; ".join(texts), 72)
