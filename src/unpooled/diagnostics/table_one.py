"""Table 1: who is in each arm, at each site and over all, and how far the arms differ."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from unpooled.diagnostics.withholding import complemented
from unpooled.methods.looking.regressors import Regressors
from unpooled.protocol.messages import Tree
from unpooled.study import ALL_SITES

ARMS = ("control", "treated")


def table_one(
    looked: Tree, found: Regressors, counts: Mapping[str, int], hidden: Mapping[str, str]
) -> pd.DataFrame:
    """A row for each site and covariate: by arm the people with a value, mean and sd, and what is missing.

    Where few people stand behind a cell, or it would show those of another site, it is empty and `withheld`.
    """
    features = slice(0, found.balanced)
    each = {name: np.asarray(looked["each"][name])[..., features] for name in ("people", "sum", "square")}
    total = {name: np.asarray(looked["total"][name])[..., features] for name in each}
    kept = np.asarray(looked["each"]["kept"])[:, features] > 0.0
    kept &= np.array([site not in hidden for site in counts])[:, None]
    told = complemented(kept, list(counts.values()), *_groups(each, total, found))
    arms = np.asarray(looked["each"]["arms"])
    rows = [
        _rows(name, _at(each, place), arms[place], told[place], found) for place, name in enumerate(counts)
    ]
    everybody = np.ones(found.balanced, dtype=bool)
    return pd.concat([*rows, _rows(ALL_SITES, total, arms.sum(axis=0), everybody, found)], ignore_index=True)


def standardised_difference(sums: Tree, means: np.ndarray | None = None) -> np.ndarray:
    """Treated less control in sds of the arms, plain or of other means [arm, feature]."""
    own, sd = moments(sums)
    difference = np.diff(own if means is None else means, axis=0)[0]
    spread = np.sqrt(np.mean(sd**2, axis=0))
    return np.divide(difference, spread, out=np.full_like(difference, np.nan), where=spread > 0.0)


def moments(sums: Tree) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd [arm, feature], in standard units; NaN of nobody."""
    people = np.where(sums["people"] > 0, sums["people"], np.nan)
    mean = sums["sum"] / people
    return mean, np.sqrt(np.maximum(sums["square"] / people - mean**2, 0.0))


def _at(each: Mapping[str, np.ndarray], place: int) -> dict[str, np.ndarray]:
    return {name: found[place] for name, found in each.items()}


def _groups(each: Tree, total: Tree, found: Regressors) -> tuple[np.ndarray, np.ndarray]:
    """People with a value by arm, and of flags those with and without it."""
    flag = found.flag[: found.balanced]

    def of(sums: Tree) -> np.ndarray:
        ones = sums["people"] * found.mean[: found.balanced] + sums["sum"] * found.sd[: found.balanced]
        ones = np.where(flag, np.round(ones), 0.0)
        parts = [sums["people"], ones, np.where(flag, sums["people"] - ones, 0.0)]
        return np.concatenate([np.moveaxis(part, -2, 0) for part in parts])

    return of(each), of(total)


def _rows(site: str, sums: Tree, arms: np.ndarray, told: np.ndarray, found: Regressors) -> pd.DataFrame:
    mean, sd = moments(sums)
    scale, centre = found.sd[: found.balanced], found.mean[: found.balanced]
    columns: dict[str, np.ndarray] = {}
    for place, arm in enumerate(ARMS):
        columns[f"{arm}_people"] = sums["people"][place]
        columns[f"{arm}_mean"] = mean[place] * scale + centre
        columns[f"{arm}_sd"] = sd[place] * scale
        columns[f"{arm}_missing"] = arms[place] - sums["people"][place]
    columns["difference"] = standardised_difference(sums)
    shown = {name: np.where(told, values, np.nan) for name, values in columns.items()}
    frame = pd.DataFrame(shown)
    frame.insert(0, "site", site)
    frame.insert(1, "feature", list(found.names[: found.balanced]))
    return frame.assign(withheld=~told)
