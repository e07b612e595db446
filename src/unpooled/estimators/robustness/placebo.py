"""Placebo: treatment shuffled among alike people of one site, so that there is no effect to find.

Shuffled within a site and within fifths of its propensity, treatment still goes with the covariates much as
it did, and no longer with the outcome. The propensity is each site's own, so no row is pooled. The effect
that was found is first taken off the treated people's outcomes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import ndtri

from unpooled.data import encode
from unpooled.data.stored_columns import column, level_names, numbers
from unpooled.estimators.robustness.analysis import Analysis
from unpooled.estimators.robustness.refit import Refit, RobustnessCheck, times
from unpooled.study import ColumnRoles, Schema

NAME = "placebo"
STRATA = 5
FEWEST = 10
"""People in a stratum: a site of fewer than fifty has fewer strata."""


def placebo(analysis: Analysis) -> RobustnessCheck:
    """The mean over the repeats; its interval must hold 0."""
    columns, schema = analysis.study.columns, analysis.model.result_.schema
    effect = analysis.main.estimate

    def change(table: pd.DataFrame, site: str, random: np.random.Generator) -> pd.DataFrame:
        stratum = strata(table, columns, schema, site=site)
        without = without_effect(table, columns, schema.treated, effect, random)
        return shuffled(without, stratum, columns.treatment, random)

    refits = analysis.again(NAME, change)
    found = together(refits)
    words = (
        f"Treatment shuffled among alike people of each site, {times(refits)}: no effect is left to find. "
        "Worrying is an interval without 0: the analysis then finds effects where there are none. "
        f"This one {'holds' if found.holds_zero else 'is without'} 0."
    )
    return RobustnessCheck(
        NAME, found.estimate, found.lower, found.upper, not found.holds_zero, words, refits
    )


def together(refits: Sequence[Refit]) -> Refit:
    """Their mean: given the tables, shuffles are independent, so its variance is theirs over their number."""
    if len(refits) == 1:
        return refits[0]
    mean = float(np.mean([one.estimate for one in refits]))
    sd = float(np.sqrt(np.mean([one.sd**2 for one in refits]) / len(refits)))
    reach = float(ndtri(0.975)) * sd
    return Refit(mean, mean - reach, mean + reach, sd)


def shuffled(
    table: pd.DataFrame, stratum: np.ndarray, treatment: str, random: np.random.Generator
) -> pd.DataFrame:
    """A copy whose treatments have changed places within strata: as many are treated in each as before."""
    order = np.arange(len(table))
    for one in np.unique(stratum):
        people = np.flatnonzero(stratum == one)
        order[people] = random.permutation(people)
    moved = column(table, treatment).take(order).set_axis(table.index)
    return table.assign(**{treatment: moved})


def strata(table: pd.DataFrame, columns: ColumnRoles, schema: Schema, *, site: str) -> np.ndarray:
    """Fifths of the site's people by their propensity; fewer parts where people are few."""
    count = max(1, min(STRATA, len(table) // FEWEST))
    order = np.argsort(propensity(table, columns, schema, site=site), kind="stable")
    rank = np.empty(len(table), dtype=int)
    rank[order] = np.arange(len(table))
    return rank * count // len(table)


def propensity(table: pd.DataFrame, columns: ColumnRoles, schema: Schema, *, site: str) -> np.ndarray:
    """By a ridge logistic regression of the site's own people, missing values at their column's mean.

    Whether a value is missing does not count: that may go with the outcome, and treatment would then too.
    """
    from sklearn.linear_model import LogisticRegression

    arrays = encode(table, columns, schema, site=site)
    features = np.column_stack([arrays.covariates, arrays.incomplete])
    seen = ~np.isnan(features)
    people = np.maximum(seen.sum(axis=0), 1)
    features_mean = np.nansum(features, axis=0) / people
    centred = np.where(seen, features - features_mean, 0.0)
    spread = np.sqrt((centred**2).sum(axis=0) / people)
    scaled = centred / np.where(spread > 1e-10 * np.abs(features_mean), spread, 1.0)
    return LogisticRegression(max_iter=1000).fit(scaled, arrays.treatment).predict_proba(scaled)[:, 1]


def without_effect(
    table: pd.DataFrame, columns: ColumnRoles, treated: str, effect: float, random: np.random.Generator
) -> pd.DataFrame:
    """A copy in which treated people's outcomes are, on average, smaller by the effect."""
    outcome = numbers(column(table, columns.outcome)).copy()
    arm = level_names(column(table, columns.treatment)) == treated
    lowered = {"continuous": _subtracted, "binary": _flipped, "count": _thinned}[columns.family]
    outcome[arm] = lowered(outcome[arm], effect, random)
    return table.assign(**{columns.outcome: outcome})


def _subtracted(values: np.ndarray, effect: float, random: np.random.Generator) -> np.ndarray:
    return values - effect


def _flipped(values: np.ndarray, effect: float, random: np.random.Generator) -> np.ndarray:
    """0/1: as many of the ones, or of the zeros, change as it takes."""
    rate = values.mean() if effect > 0.0 else 1.0 - values.mean()
    changing = (values == float(effect > 0.0)) & (random.random(len(values)) * rate < abs(effect))
    return np.where(changing, 1.0 - values, values)


def _thinned(values: np.ndarray, effect: float, random: np.random.Generator) -> np.ndarray:
    """Counts: every event is kept with one probability, or events are added."""
    if effect <= 0.0:
        return values + random.poisson(-effect, len(values))
    kept = max(0.0, 1.0 - effect / max(values.mean(), effect))
    return random.binomial(values.astype(int), kept).astype(float)
