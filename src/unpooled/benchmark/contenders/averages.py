"""Average effects alone, of the training people, after an imputation.

It does not know treatment and outcome: a single fill by conditional means that does would lean on them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pandas as pd
from sklearn.preprocessing import StandardScaler

from unpooled.benchmark.cases import Case
from unpooled.benchmark.contenders import Cost, Estimator
from unpooled.benchmark.contenders.peer import Table, logistic
from unpooled.benchmark.contenders.simple import ridge
from unpooled.benchmark.imputation import iterative
from unpooled.benchmark.scores import Estimate

LEAST = 0.01
"""No propensity is nearer to 0 or 1: nobody weighs more than a hundred."""
Parts = Callable[[Table, np.ndarray], np.ndarray]
"""(table, propensities) → numbers of people whose mean is the average effect, and whose spread its error."""


def averaged(parts: Parts) -> Estimator:
    """An estimate of the average, with normal draws; what the imputation does not know is not in them."""

    def estimate(case: Case, arrangement: str, seed: int) -> tuple[Estimate, Cost]:
        filled, spent = iterative(case, seed)
        started = time.perf_counter()
        table = _stacked(filled)
        score = logistic().fit(table.x, table.w).predict_proba(table.x)[:, 1]
        found = parts(table, np.clip(score, LEAST, 1.0 - LEAST))
        spent += time.perf_counter() - started
        error = found.std(ddof=1) / np.sqrt(len(found))
        draws = found.mean() + error * np.random.default_rng(seed).standard_normal(400)
        nobody = np.full(len(case.test_truth), np.nan)
        return Estimate(nobody, nobody, ate_draws=draws, ate=float(found.mean())), {"fit_seconds": spent}

    return estimate


def ipw(table: Table, propensity: np.ndarray) -> np.ndarray:
    """Inverse propensity weights that add up to one in each arm."""
    treated, control = (weight / weight.mean() for weight in _weights(table.w, propensity))
    averages = (treated @ table.y / len(table.y), control @ table.y / len(table.y))
    surprise = treated * (table.y - averages[0]) - control * (table.y - averages[1])
    return averages[0] - averages[1] + surprise


def dr(table: Table, propensity: np.ndarray) -> np.ndarray:
    """Doubly robust: a ridge per arm, and weights for what it leaves over."""
    said = ridge(table, table, 0)(table.x)
    assert said.control is not None
    treated, control = _weights(table.w, propensity)
    left = treated * (table.y - said.control - said.effect) - control * (table.y - said.control)
    return said.effect + left


def _weights(w: np.ndarray, propensity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return w / propensity, (1 - w) / (1.0 - propensity)


def _stacked(case: Case) -> Table:
    people = pd.concat(case.train.values())
    x = StandardScaler().fit_transform(people[case.covariates].to_numpy(float))
    return Table(x, people["w"].to_numpy(int), people["y"].to_numpy(float))


ESTIMATORS = {"ipw": averaged(ipw), "dr": averaged(dr)}
