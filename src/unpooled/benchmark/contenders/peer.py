"""A peer sees one table. How the sites' tables become one is the arrangement."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from unpooled.benchmark.cases import Case
from unpooled.benchmark.contenders import Cost, Estimator
from unpooled.benchmark.scores import Estimate


@dataclass(frozen=True)
class Table:
    """Standardised covariates, treatment and outcome."""

    x: np.ndarray
    w: np.ndarray
    y: np.ndarray

    def arm(self, arm: int) -> tuple[np.ndarray, np.ndarray]:
        return self.x[self.w == arm], self.y[self.w == arm]


@dataclass(frozen=True)
class Said:
    """Effects of new people; where the peer models outcomes, the control outcome; where it can, draws."""

    effect: np.ndarray
    control: np.ndarray | None = None
    draws: np.ndarray | None = None


Predict = Callable[[np.ndarray], Said]
Learner = Callable[[Table, Table, int], Predict]
"""(training table, validation table, seed) → a function of new people's covariates."""


def peer(learner: Learner, *, indicators: bool = False) -> Estimator:
    """A learner of one table as a contender over sites; it may be told which site a row is from."""

    # Local and bagged rest on the same models where all sites are scored; only the last case's are kept.
    @lru_cache(maxsize=1)
    def alone(case: Case, sites: tuple[str, ...], seed: int) -> tuple[dict[str, Predict], float]:
        started = time.perf_counter()
        train, valid, _ = _tables(case, indicators)
        return {
            site: learner(train[site], valid[site], seed) for site in sites
        }, time.perf_counter() - started

    def estimate(case: Case, arrangement: str, seed: int) -> tuple[Estimate, Cost]:
        train, valid, test = _tables(case, indicators)
        if arrangement == "combined":
            started = time.perf_counter()
            whole = learner(_stack(train), _stack(valid), seed)
            spent = time.perf_counter() - started
            said = {site: whole(table.x) for site, table in test.items()}
        else:
            # A site alone does not depend on whether another one can be fitted.
            own, spent = alone(case, tuple(test if arrangement == "local" else train), seed)
            said = {site: _arranged(own, site, table.x, arrangement) for site, table in test.items()}
        return _estimate(said, test), {"fit_seconds": spent}

    return estimate


def _tables(case: Case, indicators: bool) -> list[dict[str, Table]]:
    scale = _Scale.of(case)
    parts = [scale.tables(part) for part in (case.train, case.valid, case.test)]
    return [_indicated(part, list(case.train)) for part in parts] if indicators else parts


def _indicated(tables: dict[str, Table], sites: list[str]) -> dict[str, Table]:
    """A column per site, 1 for its own people."""
    flags = {site: [float(site == name) for name in sites] for site in tables}
    return {
        site: replace(table, x=np.column_stack([table.x, np.tile(flags[site], (len(table.x), 1))]))
        for site, table in tables.items()
    }


def _arranged(own: dict[str, Predict], site: str, x: np.ndarray, arrangement: str) -> Said:
    return own[site](x) if arrangement == "local" else _average([predict(x) for predict in own.values()])


def logistic() -> LogisticRegression:
    """The propensity model of every peer that wants one."""
    return LogisticRegression(max_iter=2000)


@dataclass(frozen=True)
class _Scale:
    """Means and sds over all training people, so that no arrangement is helped by its units."""

    names: list[str]
    mean: np.ndarray
    sd: np.ndarray

    @classmethod
    def of(cls, case: Case) -> _Scale:
        stacked = pd.concat(case.train.values())[case.covariates].astype(float)
        return cls(case.covariates, stacked.to_numpy().mean(axis=0), stacked.to_numpy().std(axis=0))

    def tables(self, frames: dict[str, pd.DataFrame]) -> dict[str, Table]:
        return {
            site: Table(
                (frame[self.names].to_numpy(float) - self.mean) / self.sd,
                frame["w"].to_numpy(int),
                frame["y"].to_numpy(float),
            )
            for site, frame in frames.items()
        }


def _stack(tables: dict[str, Table]) -> Table:
    parts = tables.values()
    return Table(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "w", "y")))


def _average(said: list[Said]) -> Said:
    effect = np.mean([one.effect for one in said], axis=0)
    controls = [one.control for one in said if one.control is not None]
    return Said(effect, np.mean(controls, axis=0) if len(controls) == len(said) else None)


def _estimate(said: dict[str, Said], test: dict[str, Table]) -> Estimate:
    imputed = [_impute(one, test[site]) for site, one in said.items()]
    prediction = np.concatenate([one.effect for one in said.values()])
    draws = [one.draws for one in said.values() if one.draws is not None]
    if len(draws) < len(said):
        return Estimate(np.concatenate(imputed), prediction)
    return Estimate(np.concatenate(imputed), prediction, np.concatenate(draws, axis=1))


def _impute(said: Said, people: Table) -> np.ndarray:
    """A person's own outcome takes the place of its model's, where outcomes are modelled."""
    if said.control is None:
        return said.effect
    treated = said.control + said.effect
    return np.where(people.w == 1, people.y - said.control, treated - people.y)
