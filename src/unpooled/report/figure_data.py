"""The data frames from which the figures of a fitted model are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from unpooled.effects.summary import all_alike
from unpooled.estimators import Estimator

POINTS = 200
"""Points at which a density is evaluated."""


def densities(model: Estimator, sites: Sequence[str] | None = None) -> pd.DataFrame:
    """Kernel density estimates of the ATE draws of each site (or of `sites`) and of all sites together."""
    named = model.result_.sites_with_effects if sites is None else sites
    parts = [_density(model.ate_draws(site), site) for site in named]
    return pd.concat([*parts, _density(model.ate_draws(), "all sites")], ignore_index=True)


def _density(draws: np.ndarray, site: str) -> pd.DataFrame:
    from scipy.stats import gaussian_kde

    if not np.isfinite(draws).all():  # draw nothing here, but keep the other sites
        return pd.DataFrame({"site": [site], "effect": [np.nan], "density": [np.nan]})
    spread = max(float(draws.std()), 1e-9 * max(1.0, float(np.abs(draws).max())))
    if all_alike(draws):  # all draws are equal: show a narrow spike instead of failing
        draws = draws + spread * np.linspace(-1.0, 1.0, len(draws))
    effect = np.linspace(draws.min() - spread, draws.max() + spread, POINTS)
    return pd.DataFrame({"site": site, "effect": effect, "density": gaussian_kde(draws)(effect)})


def histories(model: Estimator) -> dict[str, list[float]]:
    """The objective of each fitted structure, by evaluation."""
    structures = model.result_.fit_diagnostics.get("structures", {})
    return {
        name: list(found["history"].values)
        for name, found in structures.items()
        if "history" in found and found["history"].values
    }


def slopes(model: Estimator) -> dict[str, list[float]]:
    """The norm of the objective's gradient at each evaluation, if the method reports it."""
    structures = model.result_.fit_diagnostics.get("structures", {})
    return {
        name: list(found["slopes"].values)
        for name, found in structures.items()
        if "slopes" in found and found["slopes"].values
    }


def long(histories: dict[str, list[float]], slopes: dict[str, list[float]]) -> pd.DataFrame:
    """Objective and gradient norm in long form, one row per evaluation."""
    rows = [
        (name, i, value, slope)
        for name, history in histories.items()
        for i, (value, slope) in enumerate(
            zip(history, slopes.get(name, [np.nan] * len(history)), strict=True), 1
        )
    ]
    return pd.DataFrame(rows, columns=["structure", "evaluation", "objective", "gradient"])


def traffic_table(up: Mapping[str, int], down: Mapping[str, int]) -> pd.DataFrame:
    """Bytes sent (`up`) and received (`down`) by each site, in the study's order."""
    sites = list(up)
    return pd.DataFrame(
        {"site": sites, "up": [up[site] for site in sites], "down": [down[site] for site in sites]}
    )
