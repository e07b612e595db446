"""Table 1 and covariate balance: means by arm and site, and standardised mean differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from unpooled.disclosure.withheld import complemented, few
from unpooled.methods.diagnostics.balance import Regressors
from unpooled.methods.diagnostics.rounds import DiagnosticStatistics
from unpooled.protocol.records import Arrays
from unpooled.study import ALL_SITES

ARMS = ("control", "treated")


def table_one(
    statistics: DiagnosticStatistics,
    found: Regressors,
    counts: Mapping[str, int],
    hidden: Mapping[str, str],
    widths: Sequence[int],
) -> pd.DataFrame:
    """One row per site and covariate: count, mean, sd and number missing in each arm.

    A cell that is based on few people, or that would disclose such a cell of another site, is `withheld`.
    A column of several features (`widths`) is shown or withheld as a whole, because the features shown would
    disclose its first level.
    """
    features = slice(0, found.balanced)
    each = {
        name: np.asarray(statistics.per_site[name])[..., features] for name in ("people", "sum", "square")
    }
    total = {name: np.asarray(statistics.summed[name])[..., features] for name in each}
    arms, everybody = np.asarray(statistics.per_site["arms"]), np.asarray(statistics.summed["arms"])
    same = _same_column(widths)
    own, whole = _groups(each, arms, found, same), _groups(total, everybody, found, same)
    kept = np.asarray(statistics.per_site["kept"])[:, features] > 0.0
    kept &= np.array([site not in hidden for site in counts])[:, None]
    kept = _whole_columns(kept & ~np.any(few(own), axis=0), same)
    shown = _whole_columns(complemented(kept, list(counts.values()), own, whole), same)
    rows = [
        _rows(name, _at(each, place), arms[place], shown[place], found) for place, name in enumerate(counts)
    ]
    last = _rows(ALL_SITES, total, everybody, shown_overall(statistics, found, widths)[features], found)
    return pd.concat([*rows, last], ignore_index=True)


def shown_overall(statistics: DiagnosticStatistics, found: Regressors, widths: Sequence[int]) -> np.ndarray:
    """Whether each regressor may be shown over all sites: every group is empty or large enough."""
    same = _same_column([*widths, *[1] * found.incomplete])
    groups = _groups(statistics.summed, np.asarray(statistics.summed["arms"]), found, same)
    return _whole_columns(~np.any(few(groups), axis=0), same)


def standardised_difference(sums: Arrays, means: np.ndarray | None = None) -> np.ndarray:
    """Standardised mean differences (treated − control) of the arms' means or of `means` [arm, feature]."""
    own, sd = moments(sums)
    difference = np.diff(own if means is None else means, axis=0)[0]
    spread = np.sqrt(np.mean(sd**2, axis=0))
    return np.divide(difference, spread, out=np.full_like(difference, np.nan), where=spread > 0.0)


def moments(sums: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd [arm, feature] in standard units; NaN for an empty group."""
    people = np.where(sums["people"] > 0, sums["people"], np.nan)
    mean, square = sums["sum"] / people, sums["square"] / people
    variance = square - mean**2
    # Rounding leaves an error of about 1e-16 · square, so a constant may have a variance of that size.
    return mean, np.sqrt(np.where(variance <= 1e-12 * square, 0.0, variance))


def _at(each: Mapping[str, np.ndarray], place: int) -> dict[str, np.ndarray]:
    return {name: found[place] for name, found in each.items()}


def _groups(sums: Arrays, arms: np.ndarray, found: Regressors, same: np.ndarray) -> np.ndarray:
    """Group sizes [group, …, feature] by arm: people with and without a value and, for indicators, people at
    1, at 0, and at the column's first level, which has no indicator."""
    people = np.asarray(sums["people"])
    flag, mean, sd = (part[: people.shape[-1]] for part in (found.flag, found.mean, found.sd))
    ones = np.round(people * mean + sums["sum"] * sd)
    either = [np.where(flag, part, 0.0) for part in (ones, people - ones, people - ones @ same)]
    groups = [people, arms[..., None] - people, *either]
    return np.concatenate([np.moveaxis(part, -2, 0) for part in groups])


def _same_column(widths: Sequence[int]) -> np.ndarray:
    """Whether two features belong to the same column."""
    column = np.repeat(np.arange(len(widths)), widths)
    return column[:, None] == column


def _whole_columns(shown: np.ndarray, same: np.ndarray) -> np.ndarray:
    """Show a feature only if all features of its column may be shown."""
    return (~shown).astype(int) @ same == 0


def _rows(site: str, sums: Arrays, arms: np.ndarray, shown: np.ndarray, found: Regressors) -> pd.DataFrame:
    mean, sd = moments(sums)
    scale, centre = found.sd[: found.balanced], found.mean[: found.balanced]
    columns: dict[str, np.ndarray] = {}
    for place, arm in enumerate(ARMS):
        columns[f"{arm}_people"] = sums["people"][place]
        columns[f"{arm}_mean"] = mean[place] * scale + centre
        columns[f"{arm}_sd"] = sd[place] * scale
        columns[f"{arm}_missing"] = arms[place] - sums["people"][place]
    columns["difference"] = standardised_difference(sums)
    frame = pd.DataFrame({name: np.where(shown, values, np.nan) for name, values in columns.items()})
    frame.insert(0, "site", site)
    frame.insert(1, "feature", list(found.names[: found.balanced]))
    return frame.assign(withheld=~shown)


def balance(statistics: DiagnosticStatistics, found: Regressors, widths: Sequence[int]) -> pd.DataFrame:
    """Standardised mean differences over all sites, of every covariate and missingness indicator.

    Before weighting, the difference of an indicator discloses its count, so it is NaN if the count is small.
    """
    total = statistics.summed
    people = np.where(total["weight"] > 0, total["weight"], np.nan)
    weighted = total["weighted"] / people
    before, after = standardised_difference(total), standardised_difference(total, weighted)
    before = np.where(shown_overall(statistics, found, widths), before, np.nan)
    return pd.DataFrame({"feature": list(found.names), "before": before, "after": after})
