"""Summaries of draws of effects: moments and intervals, by site and over all sites."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from unpooled.protocol.records import combine


def moments(draws: np.ndarray) -> dict[str, float]:
    """The first four moments of one effect's draws (excess kurtosis, which is 0 for a normal)."""
    mean = float(np.mean(draws))
    sd = float(np.std(draws))
    alike = all_alike(draws)
    scaled = np.zeros_like(draws) if alike else (draws - mean) / sd
    return {
        "mean": mean,
        "variance": sd**2,
        "sd": sd,
        "skewness": float(np.mean(scaled**3)),
        "kurtosis": 0.0 if alike else float(np.mean(scaled**4) - 3.0),
    }


def all_alike(draws: np.ndarray) -> bool:
    """Whether all draws are equal up to rounding.

    >>> all_alike(0.1 + np.zeros(7)), all_alike(np.array([1.0, 1.0 + 1e-6]))
    (True, False)
    """
    return bool(np.std(draws) <= 1e-12 * np.max(np.abs(draws)))


def interval(draws: np.ndarray, alpha: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    """Equal-tailed interval over the draws (the first axis)."""
    lower, upper = np.quantile(draws, [alpha / 2.0, 1.0 - alpha / 2.0], axis=0)
    return lower, upper


def table(
    site_draws: np.ndarray, sites: Sequence[str], counts: Sequence[int], alpha: float = 0.05, *,
    weights: np.ndarray | None = None,
) -> pd.DataFrame:  # fmt: skip
    """One row per site, if there are effects by site, and one for all sites; `weights` say how much each site
    counts in the latter, by default its number of people."""
    overall, rows = combine(site_draws, counts if weights is None else weights), []
    own = zip(sites, counts, site_draws.T, strict=True) if site_draws.shape[1] == len(sites) else ()
    for name, count, draws in (*own, ("all sites", sum(counts), overall)):
        found = moments(draws)
        lower, upper = interval(draws, alpha)
        rows.append(
            {"site": name, "n": int(count), "ate": found.pop("mean"), **found, "lower": lower, "upper": upper}
        )
    return pd.DataFrame(rows).set_index("site")
