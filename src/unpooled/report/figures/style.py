"""One style for every figure: colours that a colour-blind reader and a grey printer can tell apart."""

from __future__ import annotations

from typing import Any

BLUE, ORANGE, GREEN, SKY = "#0072B2", "#D55E00", "#009E73", "#56B4E9"
PURPLE, YELLOW, BLACK, GREY = "#CC79A7", "#E69F00", "#000000", "#6E6E6E"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY)
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D")

STYLE: Any = {
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
