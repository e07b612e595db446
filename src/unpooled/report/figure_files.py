"""Lay out figures and write them as SVG or PNG files, each PNG with the CSV of its data."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from unpooled.report.figures import borrowed_strength

DPI, TALLEST = 200, 2400
"""Resolution of a PNG in dots per inch, reduced for figures taller than `TALLEST` pixels."""


def laid_out(ax: Axes) -> Figure:
    """Compute the figure's layout once and freeze it, because layout is as slow as drawing."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    FigureCanvasAgg(figure)
    figure.set_dpi(DPI)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    figure.set_layout_engine("none")
    return figure


def svg(figure: Figure) -> bytes:
    """The figure as SVG; the same figure always gives the same bytes."""
    written = BytesIO()
    FigureCanvasSVG(figure).print_svg(written, metadata={"Date": None, "Creator": None})
    return written.getvalue()


def write_png(figure: Figure, path: Path) -> None:
    figure.set_dpi(min(DPI, TALLEST / figure.get_figheight()))
    FigureCanvasAgg(figure).print_png(path)


def keep(ax: Axes, data: pd.DataFrame, path: Path) -> Path:
    """Save the figure as PNG, and its data as CSV beside it."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.savefig(path, dpi=200)
    data.to_csv(path.with_suffix(".csv"), index=False)
    return path


def draw_borrowed(shares: pd.DataFrame, path: Path) -> Path:
    """Save the figure of borrowed strength, and the shares as CSV beside it."""
    return keep(borrowed_strength.borrowed(shares), shares.reset_index(), path)
