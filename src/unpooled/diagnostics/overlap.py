"""Overlap: arms by site, propensity-score histograms, effective sample sizes and common support."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from unpooled.diagnostics.balance import ARMS
from unpooled.disclosure.limits import CELL
from unpooled.disclosure.withheld import few
from unpooled.methods.diagnostics.balance import BINS, EDGES, SHOWN_BIN
from unpooled.methods.diagnostics.rounds import DiagnosticStatistics
from unpooled.study import ALL_SITES, Description, Schema

FEW = 10
"""With fewer people in an arm, a site has little information about that arm."""
RARE = 0.1
"""Below this share of an arm, comparisons at the site depend on other sites or on extrapolation."""


@dataclass(frozen=True)
class Overlap:
    """The sizes of one site's arms, and a hint if one of them is small."""

    control: int
    treated: int
    hint: str = ""

    @property
    def rows(self) -> int:
        return self.control + self.treated

    @property
    def treated_share(self) -> float:
        return self.treated / self.rows


def overlap(control: int, treated: int) -> Overlap:
    """The hint for one site's two arms.

    >>> overlap(95, 37).hint
    ''
    >>> overlap(95, 4).hint
    'only 4 people in the treated arm'
    >>> overlap(95, 0).hint
    'nobody in the treated arm: the effect here rests on other sites'
    """
    smaller, arm = min((control, "control"), (treated, "treated"))
    if not smaller:
        return Overlap(control, treated, f"nobody in the {arm} arm: the effect here rests on other sites")
    if smaller < FEW:
        return Overlap(control, treated, f"only {smaller} people in the {arm} arm")
    if smaller < RARE * (control + treated):
        return Overlap(control, treated, f"the {arm} arm is rare: {smaller / (control + treated):.0%}")
    return Overlap(control, treated)


def overlaps(descriptions: Mapping[str, Description], schema: Schema) -> dict[str, Overlap]:
    """The arms of every site, in the order of the sites."""
    return {
        site: overlap(described.arms.get(schema.control, 0), described.arms.get(schema.treated, 0))
        for site, described in descriptions.items()
    }


EXTREME = 0.1
"""Propensity scores closer to 0 or 1 than this leave few people for comparison."""
NEAREST = 5.0
"""Counts by propensity score are rounded to a multiple of this."""


def histogram(
    statistics: DiagnosticStatistics, counts: Mapping[str, int], hidden: Mapping[str, str]
) -> pd.DataFrame:
    """People by site, arm and propensity-score bin, rounded to the nearest 5; NaN if there are few.

    Without rounding, the overall counts minus those of the other sites would disclose a site's withheld bins.
    """
    total = _in_shown_bins(statistics.summed["histogram"])
    each, shown = (np.asarray(statistics.per_site[name]) for name in ("histogram", "shown"))
    people, withheld = _in_shown_bins(each), _in_shown_bins(1.0 - shown)
    parts = [
        _bins(site, people[place], withheld[place] == 0.0)
        for place, site in enumerate(counts)
        if site not in hidden
    ]
    return pd.concat([*parts, _bins(ALL_SITES, total, ~few(total))], ignore_index=True)


def weights(
    statistics: DiagnosticStatistics, counts: Mapping[str, int], hidden: Mapping[str, str]
) -> pd.DataFrame:
    """People and effective sample size of the weights (Σw)² / Σw², by site and arm; NaN for nobody."""
    arms, sums, squares = (
        np.asarray(statistics.per_site[name]) for name in ("arms", "weights", "weight_squares")
    )
    effective = np.divide(sums**2, squares, out=np.full(sums.shape, np.nan), where=squares > 0.0)
    rows = [
        (site, arm, arms[i, j], effective[i, j])
        for i, site in enumerate(counts)
        if site not in hidden
        for j, arm in enumerate(ARMS)
    ]
    total = statistics.summed
    everybody = total["weights"] ** 2 / total["weight_squares"]
    rows += [(ALL_SITES, arm, total["arms"][j], everybody[j]) for j, arm in enumerate(ARMS)]
    return pd.DataFrame(rows, columns=["site", "arm", "people", "effective"])


SUPPORT = (0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95)
"""Between these edges, bins are joined to judge common support. Like the finer bins below and above, they are
about as wide as a factor of 2 in the odds of treatment."""


def outside_support(statistics: DiagnosticStatistics) -> float:
    """Share of people in bins of the odds of treatment in which the other arm has no one at any site.

    Rounded to the nearest 5 people, because the share could otherwise disclose the count of a withheld bin.
    """
    withheld = (1.0 - np.asarray(statistics.per_site["shown"])).sum(axis=0)
    edges = np.unique([*EDGES[(SUPPORT[0] > EDGES) | (SUPPORT[-1] < EDGES)], *SUPPORT])
    wider = np.searchsorted(edges, 0.5 * (EDGES[:-1] + EDGES[1:])) - 1
    # A bin that a site withholds is not empty.
    somebody = _joined(np.asarray(statistics.summed["histogram"]) + withheld, wider, len(edges) - 1) > 0.0
    return _share(statistics, ~somebody[::-1, wider])


def extreme(statistics: DiagnosticStatistics) -> float:
    """Share of people with a propensity score below 0.1 or above 0.9, rounded to the nearest 5 people."""
    middle = 0.5 * (EDGES[:-1] + EDGES[1:])
    return _share(
        statistics, np.broadcast_to((middle < EXTREME) | (middle > 1.0 - EXTREME), (2, len(middle)))
    )


def _share(statistics: DiagnosticStatistics, chosen: np.ndarray) -> float:
    """Share of people in the chosen bins [arm, bin], as large as it can be if sites withhold some of them."""
    sent, everybody = np.asarray(statistics.summed["histogram"]), np.asarray(statistics.summed["arms"]).sum()
    if sent.sum() == everybody:
        return float(_rounded(np.sum(sent * chosen)) / everybody)
    each, shown, arms = (np.asarray(statistics.per_site[name]) for name in ("histogram", "shown", "arms"))
    withheld, here = (1.0 - shown).sum(axis=-1), ((1.0 - shown) * chosen).sum(axis=-1)
    # Withheld bins have less than `CELL` people each, but for one that is withheld because they are few in
    # all. Then they are no more than `CELL` bins, and each of the others has at least one person.
    rest = arms - each.sum(axis=-1) - (withheld - here)
    most = np.where(withheld > CELL, (CELL - 1.0) * here, np.where(here > 0.0, rest, 0.0))
    return float(_rounded(np.sum(each * chosen) + most.sum()) / everybody)


def _in_shown_bins(sent: np.ndarray) -> np.ndarray:
    """Counts by the bins that are shown."""
    return _joined(np.asarray(sent), SHOWN_BIN, BINS)


def _joined(counts: np.ndarray, place: np.ndarray, bins: int) -> np.ndarray:
    """Counts [..., bin] added up by the wider bin that each belongs to."""
    return counts @ (place[:, None] == np.arange(bins)).astype(float)


def _rounded(people: np.ndarray) -> np.ndarray:
    return NEAREST * np.round(people / NEAREST)


def _bins(site: str, people: np.ndarray, shown: np.ndarray) -> pd.DataFrame:
    edges = np.round(np.linspace(0.0, 1.0, BINS + 1), 10)
    rounded = np.where(shown, _rounded(people), np.nan)
    columns = {"lower": edges[:-1], "upper": edges[1:]}
    parts = [
        pd.DataFrame({"site": site, "arm": arm, **columns, "people": rounded[j]})
        for j, arm in enumerate(ARMS)
    ]
    return pd.concat(parts, ignore_index=True)
