"""Placebo treatment: treatment is permuted among similar people of a site, so that there is no effect.

Permuting within sites and within fifths of the propensity score keeps the association of treatment with the
covariates and removes that with the outcome. Each site estimates its own propensity score, so no rows are
pooled. The estimated effect is first subtracted from the outcomes of treated people; otherwise a stratum that
by chance has more treated people than expected would keep both larger outcomes and more treated people.
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
"""Minimum number of people in a stratum; a site with fewer than fifty has fewer strata."""


def placebo(analysis: Analysis) -> RobustnessCheck:
    """Average the estimates over the repeats; the interval should include 0."""
    columns, schema = analysis.study.columns, analysis.model.result_.schema
    effect = analysis.main.estimate

    def change(table: pd.DataFrame, site: str, random: np.random.Generator) -> pd.DataFrame:
        stratum = strata(table, columns, schema, site=site)
        without = without_effect(table, columns, schema.treated, effect, random)
        return shuffled(without, stratum, columns.treatment, random)

    refits = analysis.refits(NAME, change)
    found = together(refits)
    words = (
        f"Refitted {times(refits)} with a placebo treatment: treatment is permuted among similar people of "
        "each site, so that it has no effect. The result is worrying if the interval excludes 0, because the "
        "analysis then finds an effect where there is none. "
        f"Here it {'includes' if found.includes_zero else 'excludes'} 0."
    )
    return RobustnessCheck(
        NAME, found.estimate, found.lower, found.upper, not found.includes_zero, words, refits
    )


def together(refits: Sequence[Refit]) -> Refit:
    """The mean of independent refits; its variance is their mean variance divided by their number."""
    if len(refits) == 1:
        return refits[0]
    mean = float(np.mean([one.estimate for one in refits]))
    sd = float(np.sqrt(np.mean([one.sd**2 for one in refits]) / len(refits)))
    reach = float(ndtri(0.975)) * sd
    return Refit(mean, mean - reach, mean + reach, sd)


def shuffled(
    table: pd.DataFrame, stratum: np.ndarray, treatment: str, random: np.random.Generator
) -> pd.DataFrame:
    """A copy with treatment permuted within strata, which keeps the number of treated in each."""
    order = np.arange(len(table))
    for one in np.unique(stratum):
        people = np.flatnonzero(stratum == one)
        order[people] = random.permutation(people)
    moved = column(table, treatment).take(order).set_axis(table.index)
    return table.assign(**{treatment: moved})


def strata(table: pd.DataFrame, columns: ColumnRoles, schema: Schema, *, site: str) -> np.ndarray:
    """Fifths of the site's people by propensity score; fewer strata at small sites."""
    count = max(1, min(STRATA, len(table) // FEWEST))
    order = np.argsort(propensity(table, columns, schema, site=site), kind="stable")
    rank = np.empty(len(table), dtype=int)
    rank[order] = np.arange(len(table))
    return rank * count // len(table)


def propensity(table: pd.DataFrame, columns: ColumnRoles, schema: Schema, *, site: str) -> np.ndarray:
    """Propensity score by ridge logistic regression at the site, with missing values set to the mean.

    Missingness indicators are excluded: they may be associated with the outcome, and treatment would be too.
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
    """A copy in which the outcomes of treated people are reduced by the effect on average."""
    outcome = numbers(column(table, columns.outcome)).copy()
    arm = level_names(column(table, columns.treatment)) == treated
    lowered = {"continuous": _subtracted, "binary": _flipped, "count": _reduced}[columns.family]
    outcome[arm] = lowered(outcome[arm], effect, random)
    return table.assign(**{columns.outcome: outcome})


def _subtracted(values: np.ndarray, effect: float, random: np.random.Generator) -> np.ndarray:
    return values - effect


def _flipped(values: np.ndarray, effect: float, random: np.random.Generator) -> np.ndarray:
    """For 0/1 outcomes, flip a random share of the ones (or zeros) so that the mean changes by the effect."""
    rate = values.mean() if effect > 0.0 else 1.0 - values.mean()
    changing = (values == float(effect > 0.0)) & (random.random(len(values)) * rate < abs(effect))
    return np.where(changing, 1.0 - values, values)


def _reduced(values: np.ndarray, effect: float, random: np.random.Generator) -> np.ndarray:
    """For counts, keep each event with the same probability, or add events."""
    if effect <= 0.0:
        return values + random.poisson(-effect, len(values))
    kept = max(0.0, 1.0 - effect / max(values.mean(), effect))
    return random.binomial(values.astype(int), kept).astype(float)
