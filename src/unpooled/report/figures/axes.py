"""A place to draw in, rows with names, and the line of no effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unpooled.report.figures import style
from unpooled.report.figures.labels import MANY

WIDTH = 6.4


def new_axes(ax: Axes | None, height: float) -> Axes:
    """The axes given, or a figure's of this height."""
    if ax is not None:
        return ax
    with mpl.rc_context(style.STYLE):
        return Figure(figsize=(WIDTH, height), layout="constrained").add_subplot()


def name_rows(ax: Axes, names: Sequence[str]) -> None:
    """From below; many as plain text, because ticks are measured again and again."""
    if len(names) < MANY:
        ax.set_yticks(range(len(names)), names)
        return
    ax.set_yticks([])
    beside: Any = {"ha": "right", "va": "center", "fontsize": 7, "transform": ax.get_yaxis_transform()}
    for place, name in enumerate(names):
        ax.text(-0.01, place, name, **beside)


def zero(ax: Axes) -> None:
    """Where there is no effect."""
    ax.axvline(0.0, color=style.GREY, linewidth=0.9, linestyle=(0, (4, 3)))
