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

from unpooled.benchmark.cases import Case
from unpooled.benchmark.contenders import Cost, EstimateFunction, networks, ours, packages, r_learner, simple
from unpooled.benchmark.contenders.low_rank import LowRankImputer, iterated_pca, probabilistic_pca
from unpooled.benchmark.scores import Estimate
from unpooled.data.stored_columns import column

Imputed = tuple[Case, float]
"""The same people without missing values, categories as 0/1 columns, and the seconds it took."""
Imputer = Callable[[Case, int], Imputed]
"""(incomplete case, seed) → the imputed case."""
AnyImputer = SimpleImputer | IterativeImputer | LowRankImputer
OUTCOME = ("w", "y")


def mean(case: Case, seed: int) -> Imputed:
    """Replace missing values by the column's mean over the training people."""
    return _timed(case, SimpleImputer(keep_empty_features=True))


def iterative(case: Case, seed: int) -> Imputed:
    """Scikit-learn's chained Bayesian ridge regressions, without treatment and outcome."""
    return _timed(case, _chained(seed))


def iterative_outcome(case: Case, seed: int) -> Imputed:
    """The same, but the training people's treatment and outcome are used as well."""
    new, seconds = stacked(iterative, case, seed)
    with_outcome, more = _timed(case, _chained(seed), with_outcome=True)
    return replace(new, train=with_outcome.train), seconds + more


def ppca(case: Case, seed: int) -> Imputed:
    """Probabilistic principal components, without treatment and outcome."""
    return _timed(case, LowRankImputer(probabilistic_pca, seed))


def pca(case: Case, seed: int) -> Imputed:
    """Principal components that are computed and filled in turn, without treatment and outcome."""
    return _timed(case, LowRankImputer(iterated_pca, seed))


# Several peers use the same imputed tables; only those of the last case are kept.
@lru_cache(maxsize=4)
def stacked(impute: Imputer, case: Case, seed: int) -> Imputed:
    """The imputed case, with one imputation for all training people."""
    return impute(case, seed)


def _chained(seed: int) -> IterativeImputer:
    return IterativeImputer(random_state=seed, keep_empty_features=True, skip_complete=True)


def _timed(case: Case, imputer: AnyImputer, *, with_outcome: bool = False) -> Imputed:
    started = time.perf_counter()
    return _filled(case, imputer, with_outcome), time.perf_counter() - started


def _filled(case: Case, imputer: AnyImputer, with_outcome: bool) -> Case:
    known = numeric(case)
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


def numeric(case: Case) -> Case:
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
            known = {
                f"{name}_{level}": (found == level).where(found.notna()) for level in levels.get(name, ())
            }
            columns |= known if name in levels else {name: found}
        return pd.DataFrame(columns).astype(float).assign(w=frame["w"], y=frame["y"])

    train, valid, test = (
        {site: numbers(frame) for site, frame in part.items()} for part in (case.train, case.valid, case.test)
    )
    flags = {name: tuple(f"{name}_{level}" for level in found) for name, found in levels.items()}
    incomplete = tuple(flag for name in case.incomplete for flag in flags.get(name, (name,)))
    return replace(case, train=train, valid=valid, test=test, incomplete=incomplete)


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
        if arrangement == "bagged":
            return _bagged(impute, estimator, case, seed)
        filled, spent = (_apart if arrangement == "federated" else stacked)(impute, case, seed)
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


def _bagged(impute: Imputer, estimator: EstimateFunction, case: Case, seed: int) -> tuple[Estimate, Cost]:
    """The mean of the sites' models, each with its own imputation; everybody is imputed by each of them."""
    parts, spent = _alone(impute, case, seed)
    found, costs = zip(*(estimator(part, "combined", seed) for part in parts.values()), strict=True)
    averages = (
        np.mean([getattr(one, task) for one in found], axis=0) for task in ("imputation", "prediction")
    )
    return Estimate(*averages), {"fit_seconds": spent + sum(cost["fit_seconds"] for cost in costs)}


def _apart(impute: Imputer, case: Case, seed: int) -> Imputed:
    """The sites' tables, each with its own imputation, as a federated study would have them."""
    parts, spent = _alone(impute, case, seed)
    whole, at = numeric(case), dict(zip(case.test, (site for site, _ in ours.asked(case)), strict=True))

    def fill(name: str, at: dict[str, str]) -> dict[str, pd.DataFrame]:
        # Only the incomplete columns: others may be constant at one site, and are left out there.
        return {
            site: frame.assign(**getattr(parts[at[site]], name)[site][list(whole.incomplete)])
            for site, frame in getattr(whole, name).items()
        }

    own = {site: site for site in parts}
    train, valid, test = fill("train", own), fill("valid", own), fill("test", at)
    return replace(whole, train=train, valid=valid, test=test, incomplete=()), spent


# Several peers use the same imputed tables; only those of the last case are kept.
@lru_cache(maxsize=2)
def _alone(impute: Imputer, case: Case, seed: int) -> tuple[dict[str, Case], float]:
    """The case as each training site would see it alone, and the seconds of all imputations."""
    whole = numeric(case)
    parts = {
        site: impute(replace(whole, train={site: whole.train[site]}, valid={site: whole.valid[site]}), seed)
        for site in whole.train
    }
    return {site: part for site, (part, _) in parts.items()}, sum(spent for _, spent in parts.values())


_RIDGE, _CONSTANT, _FEDCI = (
    simple.ESTIMATORS["ridge"],
    simple.ESTIMATORS["constant"],
    ours.plain("FedCI"),
)
_PEERS = (*packages.ESTIMATORS.items(), *r_learner.ESTIMATORS.items(), *networks.ESTIMATORS.items())
ESTIMATORS = {
    "complete-case": imputed(iterative, _RIDGE, only_complete=True),
    "mean": imputed(mean, _RIDGE),
    "iterative": imputed(iterative, _RIDGE),
    "iterative-outcome": imputed(iterative_outcome, _RIDGE),
    "iterative-constant": imputed(iterative, _CONSTANT),
    "ppca": imputed(ppca, _RIDGE),
    "pca": imputed(pca, _RIDGE),
    "iterative-fedci": imputed(iterative, _FEDCI, gives_average=True),
    "ppca-fedci": imputed(ppca, _FEDCI, gives_average=True),
    **{f"iterative-{name}": imputed(iterative, estimator) for name, estimator in _PEERS},
    **{f"ppca-{name}": imputed(ppca, estimator) for name, estimator in _PEERS},
}
