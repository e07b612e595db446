"""Peers for incomplete tables: impute the missing values of the stacked tables, then estimate.

Stacking the tables is exactly what a federated study may not do. For test people only the covariates are
used, and they are imputed by a model fitted to the training people's covariates.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.preprocessing import StandardScaler

from unpooled.benchmark.cases import Case
from unpooled.benchmark.contenders import Cost, EstimateFunction, ours, simple
from unpooled.benchmark.contenders.peer import PeerTable, logistic
from unpooled.benchmark.contenders.simple import ridge
from unpooled.benchmark.scores import Estimate
from unpooled.data.stored_columns import column

Imputed = tuple[Case, float]
"""The same people without missing values, categories as 0/1 columns, and the seconds it took."""
Imputer = Callable[[Case, int], Imputed]
"""(incomplete case, seed) → the imputed case."""
OUTCOME = ("w", "y")
SMALLEST_PROPENSITY = 0.01
"""Propensities are clipped this far from 0 and 1, so that no weight exceeds a hundred."""
Scores = Callable[[PeerTable, np.ndarray], np.ndarray]
"""(table, propensities) → one score per person: their mean is the average effect, their spread its error."""


def mean(case: Case, seed: int) -> Imputed:
    """Replace missing values by the column's mean over the training people."""
    return _timed(case, SimpleImputer(keep_empty_features=True))


# Several peers use the same imputed tables; only those of the last case are kept.
@lru_cache(maxsize=1)
def iterative(case: Case, seed: int) -> Imputed:
    """Scikit-learn's chained Bayesian ridge regressions, without treatment and outcome."""
    return _timed(case, _chained(seed))


@lru_cache(maxsize=1)
def iterative_outcome(case: Case, seed: int) -> Imputed:
    """The same, but the training people's treatment and outcome are used as well."""
    new, seconds = iterative(case, seed)
    with_outcome, more = _timed(case, _chained(seed), with_outcome=True)
    return replace(new, train=with_outcome.train), seconds + more


def _chained(seed: int) -> IterativeImputer:
    return IterativeImputer(random_state=seed, keep_empty_features=True, skip_complete=True)


def _timed(case: Case, imputer: SimpleImputer | IterativeImputer, *, with_outcome: bool = False) -> Imputed:
    started = time.perf_counter()
    return _filled(case, imputer, with_outcome), time.perf_counter() - started


def _filled(case: Case, imputer: SimpleImputer | IterativeImputer, with_outcome: bool) -> Case:
    known = _numeric(case)
    names = [name for name in known.train[next(iter(known.train))] if name not in OUTCOME]
    used = [*names, *OUTCOME] if with_outcome else names
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        imputer.fit(np.array(pd.concat(known.train.values())[used], dtype=float))

    def fill(frames: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        """Impute all sites in one call, which gives the same values and is faster than one call per site."""
        stacked = pd.concat(frames.values())
        filled = np.asarray(imputer.transform(np.array(stacked[used], dtype=float)))
        stacked[names] = filled[:, : len(names)]
        ends = np.cumsum([len(frame) for frame in frames.values()])
        parts = [
            stacked.iloc[end - len(frame) : end] for end, frame in zip(ends, frames.values(), strict=True)
        ]
        return dict(zip(frames, parts, strict=True))

    train, valid, test = (fill(part) for part in (known.train, known.valid, known.test))
    return replace(known, train=train, valid=valid, test=test, incomplete=())


def _numeric(case: Case) -> Case:
    """The covariates as numbers, with one 0/1 column for each level of a category except the first."""
    names = [*case.covariates, *case.incomplete]
    people = pd.concat(case.train.values()).loc[:, names]
    levels = {
        str(name): sorted(set(column(people, str(name)).dropna()))[1:]
        for name in people.select_dtypes(exclude="number")
    }

    def numbers(frame: pd.DataFrame) -> pd.DataFrame:
        columns = {}
        for name in names:
            found = column(frame, name)
            flags = {
                f"{name}_{level}": (found == level).where(found.notna()) for level in levels.get(name, ())
            }
            columns |= flags if name in levels else {name: found}
        return pd.DataFrame(columns).astype(float).assign(w=frame["w"], y=frame["y"])

    train, valid, test = (
        {site: numbers(frame) for site, frame in part.items()} for part in (case.train, case.valid, case.test)
    )
    return replace(case, train=train, valid=valid, test=test)


def imputed(
    impute: Imputer,
    estimator: EstimateFunction,
    *,
    only_complete: bool = False,
    gives_average: bool = False,
) -> EstimateFunction:
    """A contender for complete tables, applied after an imputation.

    With `only_complete`, only complete rows train; the people to predict are still imputed. A contender that
    does not give the training people's average effect (`gives_average`) predicts each of them instead.
    """

    def estimate(case: Case, arrangement: str, seed: int) -> tuple[Estimate, Cost]:
        filled, spent = impute(case, seed)
        own = {f"{site}, training": people for site, people in filled.train.items()}
        seen = replace(
            filled,
            train=_complete(case, filled) if only_complete else filled.train,
            test=filled.test if gives_average else {**filled.test, **own},
        )
        found, cost = estimator(seen, arrangement, seed)
        cost["fit_seconds"] += spent
        return found if gives_average else _split(found, len(case.test_truth)), cost

    return estimate


def _complete(case: Case, filled: Case) -> dict[str, pd.DataFrame]:
    """The training people without missing values."""
    return {site: filled.train[site].loc[frame.notna().all(axis=1)] for site, frame in case.train.items()}


def _split(found: Estimate, scored: int) -> Estimate:
    """The predictions of the scored people, and the average of the training people, who come after them."""
    average = float(found.prediction[scored:].mean())
    return Estimate(found.imputation[:scored], found.prediction[:scored], ate=average)


def averaged(scores: Scores) -> EstimateFunction:
    """An average effect of the training people, with normal draws, after `iterative` imputation.

    Treatment and outcome are left out of the imputation, because a single imputation by conditional means
    that uses them would bias the estimate. The draws ignore the uncertainty of the imputation.
    """

    def estimate(case: Case, arrangement: str, seed: int) -> tuple[Estimate, Cost]:
        filled, spent = iterative(case, seed)
        started = time.perf_counter()
        table = _stacked(filled)
        propensity = logistic().fit(table.x, table.w).predict_proba(table.x)[:, 1]
        found = scores(table, np.clip(propensity, SMALLEST_PROPENSITY, 1.0 - SMALLEST_PROPENSITY))
        spent += time.perf_counter() - started
        error = found.std(ddof=1) / np.sqrt(len(found))
        draws = found.mean() + error * np.random.default_rng(seed).standard_normal(400)
        unknown = np.full(len(case.test_truth), np.nan)
        return Estimate(unknown, unknown, ate_draws=draws, ate=float(found.mean())), {"fit_seconds": spent}

    return estimate


def ipw(table: PeerTable, propensity: np.ndarray) -> np.ndarray:
    """Inverse propensity weighting, with weights normalised within each arm."""
    treated, control = (weight / weight.mean() for weight in _weights(table.w, propensity))
    averages = (treated @ table.y / len(table.y), control @ table.y / len(table.y))
    residual = treated * (table.y - averages[0]) - control * (table.y - averages[1])
    return averages[0] - averages[1] + residual


def dr(table: PeerTable, propensity: np.ndarray) -> np.ndarray:
    """Doubly robust scores: a ridge regression per arm, and weighted residuals."""
    predicted = ridge(table, table, 0)(table.x)
    assert predicted.control is not None
    treated, control = _weights(table.w, propensity)
    residual = treated * (table.y - predicted.control - predicted.effect) - control * (
        table.y - predicted.control
    )
    return predicted.effect + residual


def _weights(w: np.ndarray, propensity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return w / propensity, (1 - w) / (1.0 - propensity)


def _stacked(case: Case) -> PeerTable:
    people = pd.concat(case.train.values())
    x = StandardScaler().fit_transform(people[case.covariates].to_numpy(float))
    return PeerTable(x, people["w"].to_numpy(int), people["y"].to_numpy(float))


_RIDGE, _CONSTANT, _FEDCI = (
    simple.ESTIMATORS["ridge"],
    simple.ESTIMATORS["constant"],
    ours.plain("FedCI"),
)
ESTIMATORS = {
    "complete-case": imputed(iterative, _RIDGE, only_complete=True),
    "mean": imputed(mean, _RIDGE),
    "iterative": imputed(iterative, _RIDGE),
    "iterative-outcome": imputed(iterative_outcome, _RIDGE),
    "iterative-constant": imputed(iterative, _CONSTANT),
    "iterative-fedci": imputed(iterative, _FEDCI, gives_average=True),
    "ipw": averaged(ipw),
    "dr": averaged(dr),
}
