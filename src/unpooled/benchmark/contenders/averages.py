"""Average effects of people with missing values: IPW and DR after an imputation, or without one.

The tables are stacked. Draws are normal with the estimate's standard error; after an imputation they ignore
its uncertainty.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from unpooled.benchmark.cases import Case
from unpooled.benchmark.contenders import Cost, EstimateFunction
from unpooled.benchmark.contenders.imputation import Imputer, iterative, numeric, pca, stacked
from unpooled.benchmark.contenders.peer import PeerTable, logistic
from unpooled.benchmark.contenders.simple import ridge
from unpooled.benchmark.scores import Estimate

SMALLEST_PROPENSITY = 0.01
"""Propensities are clipped this far from 0 and 1, so that no weight exceeds a hundred."""
FOLDS = 5


@dataclass(frozen=True)
class Nuisances:
    """Of each training person: the propensity, and the expected outcomes without and with treatment."""

    propensity: np.ndarray
    control: np.ndarray
    treated: np.ndarray


Model = Callable[[PeerTable, int], Nuisances]
Scores = Callable[[PeerTable, Nuisances], np.ndarray]
"""One score per person: their mean is the average effect, their spread its error."""


def averaged(scores: Scores, impute: Imputer | None) -> EstimateFunction:
    """An average effect of the training people: regressions after an imputation, or trees without one.

    Treatment and outcome are left out of the imputation, because a single imputation by conditional means
    that uses them would bias the estimate.
    """

    def estimate(case: Case, arrangement: str, seed: int) -> tuple[Estimate, Cost]:
        filled, spent = (numeric(case), 0.0) if impute is None else stacked(impute, case, seed)
        started = time.perf_counter()
        table = _stacked(filled)
        found = scores(table, trees(table, seed) if impute is None else lines(table, seed))
        spent += time.perf_counter() - started
        error = found.std(ddof=1) / np.sqrt(len(found))
        draws = found.mean() + error * np.random.default_rng(seed).standard_normal(400)
        unknown = np.full(len(case.test_truth), np.nan)
        return Estimate(unknown, unknown, ate_draws=draws, ate=float(found.mean())), {"fit_seconds": spent}

    return estimate


def _stacked(case: Case) -> PeerTable:
    people = pd.concat(case.train.values())
    x = StandardScaler().fit_transform(people[[*case.covariates, *case.incomplete]].to_numpy(float))
    return PeerTable(x, people["w"].to_numpy(int), people["y"].to_numpy(float))


def lines(table: PeerTable, seed: int) -> Nuisances:
    """A logistic regression, and a ridge regression per arm."""
    predicted = ridge(table, table, seed)(table.x)
    assert predicted.control is not None
    propensity = logistic().fit(table.x, table.w).predict_proba(table.x)[:, 1]
    return Nuisances(_clipped(propensity), predicted.control, predicted.control + predicted.effect)


def trees(table: PeerTable, seed: int) -> Nuisances:
    """Cross-fitted boosted trees, which treat "missing" as a value of its own, as Mayer et al. (2020) do."""
    propensity, control, treated = (np.empty(len(table.w)) for _ in range(3))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    for rest, fold in folds.split(table.x, table.w):
        arms = [rest[table.w[rest] == arm] for arm in (0, 1)]
        # Scikit-learn's trees refuse columns without any value.
        known = np.all([np.isfinite(table.x[rows]).any(axis=0) for rows in arms], axis=0)
        x = table.x[:, known]
        score = HistGradientBoostingClassifier(random_state=seed, **_SMALL).fit(x[rest], table.w[rest])
        propensity[fold] = score.predict_proba(x[fold])[:, 1]
        for rows, into in zip(arms, (control, treated), strict=True):
            outcome = HistGradientBoostingRegressor(random_state=seed, **_SMALL).fit(x[rows], table.y[rows])
            into[fold] = outcome.predict(x[fold])
    return Nuisances(_clipped(propensity), control, treated)


_SMALL = {"max_iter": 100, "max_depth": 3, "learning_rate": 0.05, "min_samples_leaf": 5}


def _clipped(propensity: np.ndarray) -> np.ndarray:
    return np.clip(propensity, SMALLEST_PROPENSITY, 1.0 - SMALLEST_PROPENSITY)


def ipw(table: PeerTable, known: Nuisances) -> np.ndarray:
    """Inverse propensity weighting, with weights normalised within each arm."""
    treated, control = (weight / weight.mean() for weight in _weights(table.w, known.propensity))
    averages = (treated @ table.y / len(table.y), control @ table.y / len(table.y))
    residual = treated * (table.y - averages[0]) - control * (table.y - averages[1])
    return averages[0] - averages[1] + residual


def dr(table: PeerTable, known: Nuisances) -> np.ndarray:
    """Doubly robust scores: expected outcomes, and weighted residuals."""
    treated, control = _weights(table.w, known.propensity)
    residual = treated * (table.y - known.treated) - control * (table.y - known.control)
    return known.treated - known.control + residual


def _weights(w: np.ndarray, propensity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return w / propensity, (1 - w) / (1.0 - propensity)


ESTIMATORS = {
    "ipw": averaged(ipw, iterative),
    "dr": averaged(dr, iterative),
    "pca-ipw": averaged(ipw, pca),
    "pca-dr": averaged(dr, pca),
    "ipw-not-imputed": averaged(ipw, None),
    "dr-not-imputed": averaged(dr, None),
}
