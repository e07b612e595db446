"""Could everybody have been treated, and not been? Where propensities lie, and what weighting leaves."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from unpooled.diagnostics.table_one import ARMS
from unpooled.diagnostics.withholding import CELL
from unpooled.methods.looking.balance import BINS
from unpooled.protocol.messages import Tree
from unpooled.study import ALL_SITES

EXTREME = 0.1
"""Propensities nearer to 0 or 1 than this leave few people to compare with."""


def histogram(looked: Tree, counts: Mapping[str, int], hidden: Mapping[str, str]) -> pd.DataFrame:
    """People by site, arm and twentieth of the propensity, to the nearest 5; empty where they are few.

    Rounded, because all sites' less those of all but one would tell of the bins that one site kept back.
    """
    total = np.asarray(looked["total"]["histogram"])
    each, shown = (np.asarray(looked["each"][name]) for name in ("histogram", "shown"))
    parts = [
        _bins(site, each[place], shown[place] > 0.0)
        for place, site in enumerate(counts)
        if site not in hidden
    ]
    told = (total == 0) | (total >= CELL)
    return pd.concat([*parts, _bins(ALL_SITES, total, told)], ignore_index=True)


def weights(looked: Tree, counts: Mapping[str, int], hidden: Mapping[str, str]) -> pd.DataFrame:
    """By site and arm: people, and how many equally weighted people their weights are worth."""
    arms, sums, squares = (np.asarray(looked["each"][name]) for name in ("arms", "weights", "weight_squares"))
    rows = [
        (site, arm, arms[i, j], sums[i, j] ** 2 / squares[i, j])
        for i, site in enumerate(counts)
        if site not in hidden
        for j, arm in enumerate(ARMS)
    ]
    all_sites = sums.sum(axis=0) ** 2 / squares.sum(axis=0)
    rows += [(ALL_SITES, arm, arms[:, j].sum(), all_sites[j]) for j, arm in enumerate(ARMS)]
    return pd.DataFrame(rows, columns=["site", "arm", "people", "effective"])


def outside_support(looked: Tree) -> float:
    """Share of people in a twentieth of the propensity in which the other arm has nobody, at any site."""
    people = np.asarray(looked["total"]["histogram"])
    return float(people[:, np.any(people == 0, axis=0)].sum() / people.sum())


def extreme(looked: Tree) -> float:
    """Share of people with a propensity below 0.1 or above 0.9."""
    people = np.asarray(looked["total"]["histogram"])
    edge = round(EXTREME * BINS)
    return float((people[:, :edge].sum() + people[:, -edge:].sum()) / people.sum())


def _bins(site: str, people: np.ndarray, told: np.ndarray) -> pd.DataFrame:
    edges = np.round(np.linspace(0.0, 1.0, BINS + 1), 10)
    rounded = np.where(told, 5.0 * np.round(people / 5.0), np.nan)
    columns = {"lower": edges[:-1], "upper": edges[1:]}
    parts = [
        pd.DataFrame({"site": site, "arm": arm, **columns, "people": rounded[j]})
        for j, arm in enumerate(ARMS)
    ]
    return pd.concat(parts, ignore_index=True)
