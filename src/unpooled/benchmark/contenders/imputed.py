"""Peers for tables with holes: fill them, then go on as if they had been whole."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from unpooled.benchmark.cases import Case
from unpooled.benchmark.contenders import Cost, Estimator, ours, simple
from unpooled.benchmark.imputation import Imputer, iterative, iterative_outcome, mean
from unpooled.benchmark.scores import Estimate


def imputed(
    impute: Imputer, estimator: Estimator, *, only_complete: bool = False, says_average: bool = False
) -> Estimator:
    """A contender for whole tables, after an imputation.

    If only complete rows train, that is all the difference: whoever is asked about is filled. A contender
    that does not say the training people's average is asked about each of them.
    """

    def estimate(case: Case, arrangement: str, seed: int) -> tuple[Estimate, Cost]:
        filled, spent = impute(case, seed)
        own = {f"{site}, training": people for site, people in filled.train.items()}
        seen = replace(
            filled,
            train=_complete(case, filled) if only_complete else filled.train,
            test=filled.test if says_average else {**filled.test, **own},
        )
        said, cost = estimator(seen, arrangement, seed)
        cost["fit_seconds"] += spent
        return said if says_average else _parted(said, len(case.test_truth)), cost

    return estimate


def _complete(case: Case, filled: Case) -> dict[str, pd.DataFrame]:
    """The training people who had no holes."""
    return {site: filled.train[site].loc[frame.notna().all(axis=1)] for site, frame in case.train.items()}


def _parted(said: Estimate, scored: int) -> Estimate:
    """The scored people one by one, the training people after them by their average."""
    average = float(said.prediction[scored:].mean())
    return Estimate(said.imputation[:scored], said.prediction[:scored], ate=average)


_RIDGE, _CONSTANT, _FEDCI = (
    simple.ESTIMATORS["ridge"],
    simple.ESTIMATORS["constant"],
    ours.ESTIMATORS["fedci"],
)
ESTIMATORS = {
    "complete-case": imputed(iterative, _RIDGE, only_complete=True),
    "mean": imputed(mean, _RIDGE),
    "iterative": imputed(iterative, _RIDGE),
    "iterative-outcome": imputed(iterative_outcome, _RIDGE),
    "iterative-constant": imputed(iterative, _CONSTANT),
    "iterative-fedci": imputed(iterative, _FEDCI, says_average=True),
}
