"""Peers: learners of a single table. The arrangement determines how the sites' tables become one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from unpooled.benchmark.cases import Case
from unpooled.benchmark.contenders import Cost, EstimateFunction
from unpooled.benchmark.scores import Estimate


@dataclass(frozen=True)
class PeerTable:
    """A table for one peer: standardised covariates, treatment and outcome."""

    x: np.ndarray
    w: np.ndarray
    y: np.ndarray

    def arm(self, arm: int) -> tuple[np.ndarray, np.ndarray]:
        return self.x[self.w == arm], self.y[self.w == arm]


@dataclass(frozen=True)
class PeerPrediction:
    """Predicted effects; control outcomes if the peer models outcomes; draws if it has them.

    `average` has draws of the average effect over the training people, whoever is asked about.
    """

    effect: np.ndarray
    control: np.ndarray | None = None
    draws: np.ndarray | None = None
    average: np.ndarray | None = None


Predict = Callable[[np.ndarray], PeerPrediction]
Learner = Callable[[PeerTable, PeerTable, int], Predict]
"""(training table, validation table, seed) → a prediction function of covariates."""


def peer(learner: Learner, *, indicators: bool = False) -> EstimateFunction:
    """A contender made of a learner of one table; with `indicators`, 0/1 columns identify the site."""

    # If all sites are scored, "local" and "bagged" use the same models; only the last case's are kept.
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
            started, stacked = time.perf_counter(), _stack(train)
            whole = learner(stacked, _stack(valid), seed)
            spent = time.perf_counter() - started
            predicted = {site: whole(table.x) for site, table in test.items()}
            return _with_training(_estimate(predicted, test), whole(stacked.x)), {"fit_seconds": spent}
        # "local" fits only the scored sites, so that it does not fail when another site cannot be fitted.
        own, spent = alone(case, tuple(test if arrangement == "local" else train), seed)
        predicted = {site: _arranged(own, site, table.x, arrangement) for site, table in test.items()}
        return _estimate(predicted, test), {"fit_seconds": spent}

    return estimate


def _tables(case: Case, indicators: bool) -> list[dict[str, PeerTable]]:
    scale = _Scale.of(case)
    parts = [scale.tables(part) for part in (case.train, case.valid, case.test)]
    return [_indicated(part, list(case.train)) for part in parts] if indicators else parts


def _indicated(tables: dict[str, PeerTable], sites: list[str]) -> dict[str, PeerTable]:
    """Add one 0/1 column per site."""
    flags = {site: [float(site == name) for name in sites] for site in tables}
    return {
        site: replace(table, x=np.column_stack([table.x, np.tile(flags[site], (len(table.x), 1))]))
        for site, table in tables.items()
    }


def _arranged(own: dict[str, Predict], site: str, x: np.ndarray, arrangement: str) -> PeerPrediction:
    return own[site](x) if arrangement == "local" else _average([predict(x) for predict in own.values()])


def logistic() -> LogisticRegression:
    """The propensity model of every peer that needs one."""
    return LogisticRegression(max_iter=2000)


@dataclass(frozen=True)
class _Scale:
    """Means and sds over all training people, so that every arrangement has the same units."""

    names: list[str]
    mean: np.ndarray
    sd: np.ndarray

    @classmethod
    def of(cls, case: Case) -> _Scale:
        stacked = pd.concat(case.train.values())[case.covariates].astype(float)
        return cls(case.covariates, stacked.to_numpy().mean(axis=0), stacked.to_numpy().std(axis=0))

    def tables(self, frames: dict[str, pd.DataFrame]) -> dict[str, PeerTable]:
        return {
            site: PeerTable(
                (frame[self.names].to_numpy(float) - self.mean) / self.sd,
                frame["w"].to_numpy(int),
                frame["y"].to_numpy(float),
            )
            for site, frame in frames.items()
        }


def _stack(tables: dict[str, PeerTable]) -> PeerTable:
    parts = tables.values()
    return PeerTable(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "w", "y")))


def _average(predicted: list[PeerPrediction]) -> PeerPrediction:
    effect = np.mean([one.effect for one in predicted], axis=0)
    controls = [one.control for one in predicted if one.control is not None]
    return PeerPrediction(effect, np.mean(controls, axis=0) if len(controls) == len(predicted) else None)


def _estimate(predicted: dict[str, PeerPrediction], test: dict[str, PeerTable]) -> Estimate:
    imputed = [_impute(one, test[site]) for site, one in predicted.items()]
    prediction = np.concatenate([one.effect for one in predicted.values()])
    draws = [one.draws for one in predicted.values() if one.draws is not None]
    if len(draws) < len(predicted):
        return Estimate(np.concatenate(imputed), prediction)
    return Estimate(np.concatenate(imputed), prediction, np.concatenate(draws, axis=1))


def _with_training(estimate: Estimate, trained: PeerPrediction) -> Estimate:
    """Add the training people's effects and their average, with its draws if the peer has them."""
    ate = None if trained.average is not None else float(trained.effect.mean())
    return replace(estimate, training=trained.effect, ate=ate, ate_draws=trained.average)


def _impute(predicted: PeerPrediction, people: PeerTable) -> np.ndarray:
    """Effects of people with known outcomes: the observed outcome replaces the predicted one, if any."""
    if predicted.control is None:
        return predicted.effect
    treated = predicted.control + predicted.effect
    return np.where(people.w == 1, people.y - predicted.control, treated - people.y)
