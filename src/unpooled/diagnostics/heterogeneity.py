"""Heterogeneity between sites: doubly robust estimates by site, leave-one-site-out, and comparators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

import numpy as np
import pandas as pd

from unpooled.maths.meta_analysis import SMALLEST_ERROR, pool, quantile, random_effects
from unpooled.maths.meta_analysis import heterogeneity as spread_of
from unpooled.methods.aipw.model import of_scores, stacked_scores
from unpooled.methods.diagnostics.rounds import DiagnosticStatistics

LEVEL = 0.975


class PooledEstimate(TypedDict):
    """A pooled estimate with its standard error."""

    estimate: float
    standard_error: float


class RandomEffectsEstimate(PooledEstimate):
    """The mean effect of a population of sites, and the interval in which another site's effect would lie."""

    degrees: int
    """Degrees of freedom of its interval, which is that of Hartung and Knapp."""
    prediction_lower: float
    prediction_upper: float


class SiteHeterogeneity(TypedDict, total=False):
    """How much the sites' estimates differ, and what they give together; empty for fewer than two sites."""

    sites: int
    q: float
    degrees: int
    p_value: float
    i_squared: float
    tau_squared: float
    fixed: PooledEstimate
    random: RandomEffectsEstimate


def with_interval(frame: pd.DataFrame) -> pd.DataFrame:
    """Add the 95% interval: normal, or Student's where the frame has degrees of freedom."""
    degrees = frame["degrees"] if "degrees" in frame else np.zeros(len(frame), int)
    reach = frame["standard_error"] * [quantile(LEVEL, int(one)) for one in degrees]
    return frame.assign(lower=frame["estimate"] - reach, upper=frame["estimate"] + reach)


def site_estimates(
    statistics: DiagnosticStatistics, scale: float, counts: Mapping[str, int], hidden: Mapping[str, str]
) -> pd.DataFrame:
    """site, people, estimate, standard_error, lower, upper."""
    people = np.array([*counts.values()], dtype=float)
    columns = {"people": people, "estimate": scale * statistics.site_estimates}
    frame = pd.DataFrame({"site": list(counts), **columns, "standard_error": scale * statistics.site_errors})
    shown = np.array([site not in hidden for site in counts])
    return with_interval(frame.loc[shown].reset_index(drop=True))


def pooled(sites: pd.DataFrame, scale: float) -> SiteHeterogeneity:
    """Q, its p-value, I², τ², and fixed- and random-effects estimates of sites with a standard error.

    Empty if there are fewer than two such sites.
    """
    estimate, error = (sites[name].to_numpy(float) for name in ("estimate", "standard_error"))
    usable = np.isfinite(error) & (error > SMALLEST_ERROR * scale)
    if usable.sum() < 2:
        return {}
    pair = estimate[usable], error[usable]
    spread = spread_of(*pair)
    fixed, random = pool(*pair), random_effects(*pair, spread.tau_squared)
    reach = quantile(LEVEL, random.degrees) * random.prediction_error
    return {
        "sites": int(usable.sum()),
        "q": spread.q,
        "degrees": spread.degrees,
        "p_value": spread.p_value,
        "i_squared": spread.i_squared,
        "tau_squared": spread.tau_squared,
        "fixed": {"estimate": fixed.estimate, "standard_error": fixed.error},
        "random": {
            "estimate": random.estimate,
            "standard_error": random.error,
            "degrees": random.degrees,
            "prediction_lower": random.estimate - reach,
            "prediction_upper": random.estimate + reach,
        },
    }


def leave_one_out(
    statistics: DiagnosticStatistics, scale: float, counts: Mapping[str, int], hidden: Mapping[str, str]
) -> pd.DataFrame:
    """Leave-one-site-out estimates of the sites that may be shown; the regressions are not refitted.

    Standard errors are those of one stacked table: a sum of errors by site, compared with the overall error,
    would disclose those of hidden sites.
    """
    people, weight = statistics.site_people, statistics.site_weights
    squares = (weight * statistics.site_errors) ** 2 * np.maximum(people - 1.0, 1.0) / people
    sums = {"people": people, "weight": weight, "mean": statistics.site_estimates, "squares": squares}
    rows = []
    for place, site in enumerate(counts):
        if site in hidden or len(counts) < 2:
            continue
        rest = of_scores(stacked_scores({name: np.delete(part, place) for name, part in sums.items()}))
        rows.append((site, scale * rest.estimate, scale * rest.error))
    return with_interval(pd.DataFrame(rows, columns=["site", "estimate", "standard_error"]))


NAMES = {
    "difference": "unadjusted difference",
    "ipw": "inverse propensity weighting",
    "aipw": "doubly robust (AIPW)",
}


def comparators(statistics: DiagnosticStatistics, scale: float, pooled: SiteHeterogeneity) -> pd.DataFrame:
    """estimator, estimate, standard_error, lower, upper."""
    rows = [
        (name, *(scale * number for number in getattr(statistics, key)), 0) for key, name in NAMES.items()
    ]
    for effects, one in (("fixed", pooled.get("fixed")), ("random", pooled.get("random"))):
        if one is not None:
            degrees = one.get("degrees", 0)
            rows.append(
                (f"meta-analysis, {effects} effects", one["estimate"], one["standard_error"], degrees)
            )
    frame = pd.DataFrame(rows, columns=["estimator", "estimate", "standard_error", "degrees"])
    return with_interval(frame).drop(columns="degrees")
