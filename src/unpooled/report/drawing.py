"""What figures are drawn from, and how they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from unpooled.effects.summary import all_alike
from unpooled.estimators import Estimator
from unpooled.report.figures import borrowed_strength

POINTS = 200
DPI, TALLEST = 200, 2400
"""Dots per inch of a PNG, fewer where it would have more rows of pixels than this."""


def laid_out(ax: Axes) -> Figure:
    """The figure with everything at its place for good: that takes as long as to draw it."""
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
    """The same figure, the same bytes."""
    written = BytesIO()
    FigureCanvasSVG(figure).print_svg(written, metadata={"Date": None, "Creator": None})
    return written.getvalue()


def write_png(figure: Figure, path: Path) -> None:
    figure.set_dpi(min(DPI, TALLEST / figure.get_figheight()))
    FigureCanvasAgg(figure).print_png(path)


def keep(ax: Axes, data: pd.DataFrame, path: Path) -> Path:
    """The figure, and beside it what it was drawn from."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.savefig(path, dpi=200)
    data.to_csv(path.with_suffix(".csv"), index=False)
    return path


def draw_borrowed(shares: pd.DataFrame, path: Path) -> Path:
    """Who borrows from whom: the figure, and the shares beside it."""
    return keep(borrowed_strength.borrowed(shares), shares.reset_index(), path)


def densities(model: Estimator, sites: Sequence[str] | None = None) -> pd.DataFrame:
    """A smooth density of the ATE draws of each site, or of these ones, and of all of them together."""
    named = model.result_.sites if sites is None else sites
    parts = [_density(model.ate_draws(site), site) for site in named]
    return pd.concat([*parts, _density(model.ate_draws(), "all sites")], ignore_index=True)


def _density(draws: np.ndarray, site: str) -> pd.DataFrame:
    from scipy.stats import gaussian_kde

    if not np.isfinite(draws).all():  # nothing to draw, and no reason to lose the other sites' figures
        return pd.DataFrame({"site": [site], "effect": [np.nan], "density": [np.nan]})
    spread = max(float(draws.std()), 1e-9 * max(1.0, float(np.abs(draws).max())))
    if all_alike(draws):  # every draw the same: a spike of that width, so that the figure still stands
        draws = draws + spread * np.linspace(-1.0, 1.0, len(draws))
    effect = np.linspace(draws.min() - spread, draws.max() + spread, POINTS)
    return pd.DataFrame({"site": site, "effect": effect, "density": gaussian_kde(draws)(effect)})


def histories(model: Estimator) -> dict[str, list[float]]:
    """The objective of each structure that was fitted, by evaluation."""
    structures = model.result_.fit_diagnostics.get("structures", {})
    return {
        name: list(found["history"].values)
        for name, found in structures.items()
        if "history" in found and found["history"].values
    }


def slopes(model: Estimator) -> dict[str, list[float]]:
    """The length of the objective's gradient at each of them, where a method tells it."""
    structures = model.result_.fit_diagnostics.get("structures", {})
    return {
        name: list(found["slopes"].values)
        for name, found in structures.items()
        if "slopes" in found and found["slopes"].values
    }


def long(histories: dict[str, list[float]], slopes: dict[str, list[float]]) -> pd.DataFrame:
    """A row for each evaluation."""
    rows = [
        (name, i, value, slope)
        for name, history in histories.items()
        for i, (value, slope) in enumerate(
            zip(history, slopes.get(name, [np.nan] * len(history)), strict=True), 1
        )
    ]
    return pd.DataFrame(rows, columns=["structure", "evaluation", "objective", "gradient"])


def traffic_table(cost: dict[str, Any]) -> pd.DataFrame:
    """site, up, down, in the order of the study."""
    sites = list(cost["bytes_up"])
    up, down = ([cost[f"bytes_{way}"][site] for site in sites] for way in ("up", "down"))
    return pd.DataFrame({"site": sites, "up": up, "down": down})
