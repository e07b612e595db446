"""Colours, axes and labels shared by all figures.

The colours stay distinct in greyscale and for colour-blind readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, SKY = "#0072B2", "#D55E00", "#009E73", "#56B4E9"
PURPLE, YELLOW, BLACK, GREY = "#CC79A7", "#E69F00", "#000000", "#6E6E6E"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY)
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D")

STYLE: Any = {  # newer versions of matplotlib type the keys
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "xtick.color": BLACK,
    "ytick.color": BLACK,
    "savefig.dpi": 200,
}
WIDTH = 6.4


class OutcomeName(TypedDict):
    """The name and unit of the outcome, for the labels of axes."""

    outcome: str
    unit: NotRequired[str]


LONGEST = 30
"""Names longer than this are shortened in the middle."""
MANY = 25
"""From this many rows on, rows are drawn closer together and in smaller type."""


def new_axes(ax: Axes | None, height: float) -> Axes:
    """The given axes, or those of a new figure of this height (inches)."""
    if ax is not None:
        return ax
    with mpl.rc_context(STYLE):
        return Figure(figsize=(WIDTH, height), layout="constrained").add_subplot()


def name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Label the rows from bottom to top; many rows as plain text, because layout of ticks is slow."""
    if len(names) < MANY:
        ax.set_yticks(range(len(names)), names)
        return
    ax.set_yticks([])
    transform = ax.get_yaxis_transform()
    for place, name in enumerate(names):
        ax.text(-0.01, place, name, ha="right", va="center", fontsize=7, transform=transform)


def zero(ax: Axes) -> None:
    """Draw the line of no effect."""
    ax.axvline(0.0, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))


def literal(text: str) -> str:
    """Escape dollar signs, which matplotlib would read as mathematics."""
    return text.replace("$", r"\$")


def shortened(name: object, longest: int = LONGEST) -> str:
    """An escaped name, shortened in the middle if it is long.

    >>> shortened("University Hospital of Lower Saxony, Cardiology")
    'University Hospital…Cardiology'
    """
    text = str(name)
    if len(text) > longest:
        end = longest // 3
        text = f"{text[: longest - end - 1].rstrip()}…{text[-end:].lstrip()}"
    return literal(text)


def on_outcome(what: str, outcome: str, unit: str) -> str:
    """The label of an axis of effects.

    >>> on_outcome("effect", "weight", "kg"), on_outcome("average effect", "weight", "")
    ('effect on weight (kg)', 'average effect on weight')
    """
    return f"{what} on {shortened(outcome)}" + (f" ({literal(unit)})" if unit else "")


def row_height(rows: int) -> float:
    """Height of a labelled row in inches."""
    return 0.34 if rows < MANY else 0.17
