"""Every figure of a results folder, each beside the CSV it was drawn from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from unpooled.diagnostics.borrowing import borrowed
from unpooled.report import borrowing, figures
from unpooled.report.model import Model

POINTS = 200


def write_figures(model: Model, content: dict[str, Any], folder: Path) -> list[Path]:
    """Draw from a model and the content of its result.json; the paths of the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    summary = model.summary()
    words = {"outcome": content["outcome"], "unit": content["outcome_unit"]}
    density = densities(model)
    drawn = [
        keep(figures.posterior(density, summary, **words), density, folder / "posterior.png"),
        keep(figures.forest(summary, **words), summary.reset_index(), folder / "forest.png"),
    ]
    histories = _histories(model)
    if histories:
        drawn.append(keep(figures.convergence(histories), _long(histories), folder / "convergence.png"))
    shares = borrowed(model.result_.diagnostics, model.result_.sites)
    if shares is not None:
        drawn.append(draw_borrowed(shares, folder / "borrowed.png"))
    bytes_by_site = traffic_table(content["cost"])
    drawn.append(keep(figures.traffic(bytes_by_site), bytes_by_site, folder / "bytes.png"))
    return drawn


def keep(ax: Axes, data: pd.DataFrame, path: Path) -> Path:
    """The figure, and beside it what it was drawn from."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.savefig(path, dpi=200)
    data.to_csv(path.with_suffix(".csv"), index=False)
    return path


def draw_borrowed(shares: pd.DataFrame, path: Path) -> Path:
    """Who borrows from whom: the figure, and the shares beside it."""
    return keep(borrowing.borrowed(shares), shares.reset_index(), path)


def densities(model: Model) -> pd.DataFrame:
    """A smooth density of each site's ATE draws and of all sites'."""
    parts = [_density(model.ate_draws(site), site) for site in model.result_.sites]
    return pd.concat([*parts, _density(model.ate_draws(), "all sites")], ignore_index=True)


def _density(draws: np.ndarray, site: str) -> pd.DataFrame:
    from scipy.stats import gaussian_kde

    if not np.isfinite(draws).all():  # nothing to draw, and no reason to lose the other sites' figures
        return pd.DataFrame({"site": [site], "effect": [np.nan], "density": [np.nan]})
    spread = max(float(draws.std()), 1e-9 * max(1.0, float(np.abs(draws).max())))
    if not draws.std() > 0.0:  # every draw the same: a spike of that width, so that the figure still stands
        draws = draws + spread * np.linspace(-1.0, 1.0, len(draws))
    effect = np.linspace(draws.min() - spread, draws.max() + spread, POINTS)
    return pd.DataFrame({"site": site, "effect": effect, "density": gaussian_kde(draws)(effect)})


def _histories(model: Model) -> dict[str, list[float]]:
    structures = model.result_.diagnostics.get("structures", {})
    return {name: list(found["history"]) for name, found in structures.items() if found.get("history")}


def _long(histories: dict[str, list[float]]) -> pd.DataFrame:
    rows = [(name, i, value) for name, history in histories.items() for i, value in enumerate(history, 1)]
    return pd.DataFrame(rows, columns=["structure", "evaluation", "objective"])


def traffic_table(cost: dict[str, Any]) -> pd.DataFrame:
    """site, up, down, in the order of the study."""
    sites = list(cost["bytes_up"])
    up, down = ([cost[f"bytes_{way}"][site] for site in sites] for way in ("up", "down"))
    return pd.DataFrame({"site": sites, "up": up, "down": down})
