"""Holes filled over the stacked tables, which is what nobody may do: the first half of every peer here.

Of new people only covariates are used, filled by what was fitted to the training people's.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer

from unpooled.benchmark.cases import Case
from unpooled.data.presence import column

Imputed = tuple[Case, float]
"""The same people without holes, categories as 0/1 columns; and the seconds it took."""
Imputer = Callable[[Case, int], Imputed]
"""(a case with holes, seed) → it filled."""
OUTCOME = ("w", "y")


def mean(case: Case, seed: int) -> Imputed:
    """Each column's mean over the training people who have it."""
    return _timed(case, SimpleImputer(keep_empty_features=True))


# Several peers go on from the same tables; only the last case's are kept.
@lru_cache(maxsize=1)
def iterative(case: Case, seed: int) -> Imputed:
    """Scikit-learn's chained Bayesian ridges of each column on all others, treatment and outcome left out."""
    return _timed(case, _chained(seed))


@lru_cache(maxsize=1)
def iterative_outcome(case: Case, seed: int) -> Imputed:
    """The same with treatment and outcome in it where people train; of new people they are not known."""
    new, seconds = iterative(case, seed)
    told, more = _timed(case, _chained(seed), with_outcome=True)
    return replace(new, train=told.train), seconds + more


def _chained(seed: int) -> IterativeImputer:
    return IterativeImputer(random_state=seed, keep_empty_features=True, skip_complete=True)


def _timed(case: Case, imputer: Any, *, with_outcome: bool = False) -> Imputed:
    started = time.perf_counter()
    return _filled(case, imputer, with_outcome), time.perf_counter() - started


def _filled(case: Case, imputer: Any, with_outcome: bool) -> Case:
    known = _in_numbers(case)
    names = [name for name in known.train[next(iter(known.train))] if name not in OUTCOME]
    used = [*names, *OUTCOME] if with_outcome else names
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        imputer.fit(np.array(pd.concat(known.train.values())[used], dtype=float))

    def fill(frames: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        """All at once: row by row it is the same, and site by site it takes longer."""
        stacked = pd.concat(frames.values())
        stacked[names] = imputer.transform(np.array(stacked[used], dtype=float))[:, : len(names)]
        ends = np.cumsum([len(frame) for frame in frames.values()])
        parts = [
            stacked.iloc[end - len(frame) : end] for end, frame in zip(ends, frames.values(), strict=True)
        ]
        return dict(zip(frames, parts, strict=True))

    train, valid, test = (fill(part) for part in (known.train, known.valid, known.test))
    return replace(known, train=train, valid=valid, test=test, incomplete=())


def _in_numbers(case: Case) -> Case:
    """Covariates that vary or have holes; of a category, a 0/1 column for each level but the first."""
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
