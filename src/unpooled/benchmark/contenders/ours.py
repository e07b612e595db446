"""The methods of this package: on the sites as they are, on the stacked tables, and on each site alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle

import numpy as np
import pandas as pd

import unpooled as up
from unpooled.benchmark.cases import Case
from unpooled.benchmark.contenders import Cost, EstimateFunction
from unpooled.benchmark.scores import Estimate
from unpooled.data.simulation import varying
from unpooled.estimators import Estimator

Make = Callable[[int], Estimator]
"""seed → an unfitted model."""


def ours(make: Make) -> EstimateFunction:
    """A contender made of one of our estimators."""

    def estimate(case: Case, arrangement: str, seed: int) -> tuple[Estimate, Cost]:
        # The paper's truth is the average over the people of the study.
        study = up.Study(
            treatment="w",
            outcome="y",
            covariates=case.covariates,
            incomplete=case.incomplete,
            target="sample",
        )
        if arrangement == "federated":
            return _fit(make(seed), study, case.train, asked(case))
        if arrangement == "combined":
            # Imputed effects depend on who is imputed together, so each site is asked separately here too.
            test = [("stacked", people) for people in case.test.values()]
            return _fit(make(seed), study, {"stacked": pd.concat(case.train.values())}, test)
        parts = [_alone(make(seed), case, site) for site in case.test]
        together = _together(
            [estimate for estimate, _ in parts], [len(case.train[site]) for site in case.test]
        )
        if len(case.test) < len(case.train):
            # The sites that are not scored were not fitted, so the average over all people is unknown.
            together = replace(together, ate_draws=None)
        return together, _most([cost for _, cost in parts])

    return estimate


def asked(case: Case) -> list[tuple[str, pd.DataFrame]]:
    """Pairs of a site and the people to predict there: their own site or, if it does not train, the next."""
    trained, turn = list(case.train), cycle(case.train)
    return [(site if site in trained else next(turn), people) for site, people in case.test.items()]


def _fit(
    model: Estimator, study: up.Study, train: dict[str, pd.DataFrame], test: list[tuple[str, pd.DataFrame]]
) -> tuple[Estimate, Cost]:
    started = time.perf_counter()
    model.fit(study, train)
    seconds = time.perf_counter() - started
    prediction = np.concatenate([model.effect_draws(p, site=site) for site, p in test], axis=1)
    imputation = np.concatenate([model.ite(site, people) for site, people in test])
    training = np.concatenate([model.effect(people, site=site) for site, people in train.items()])
    cost = model.result_.cost
    spent = {
        "fit_seconds": seconds,
        "rounds": float(cost.rounds),
        "megabytes": max(cost.bytes_up.values()) / 1e6,
    }
    return Estimate(
        imputation, prediction.mean(axis=0), prediction, model.ate_draws(), training=training
    ), spent


def _alone(model: Estimator, case: Case, site: str) -> tuple[Estimate, Cost]:
    train, test = case.train[site], case.test[site]
    study = up.Study(treatment="w", outcome="y", covariates=varying(train), target="sample")
    return _fit(model, study, {site: train}, [(site, test)])


def _together(parts: list[Estimate], people: list[int]) -> Estimate:
    ate = sum(n / sum(people) * np.asarray(part.ate_draws) for n, part in zip(people, parts, strict=True))
    return Estimate(
        np.concatenate([part.imputation for part in parts]),
        np.concatenate([part.prediction for part in parts]),
        np.concatenate([np.asarray(part.prediction_draws) for part in parts], axis=1),
        np.asarray(ate),
    )


def _most(costs: list[Cost]) -> Cost:
    return {name: max(cost[name] for cost in costs) for name in costs[0]}


def plain(estimator_class: str) -> EstimateFunction:
    """A contender made of one of our estimators with its default settings."""
    return ours(lambda seed: getattr(up, estimator_class)(seed=seed))


ESTIMATORS = {
    "fedci-no-shifts": ours(lambda seed: up.FedCI(seed=seed, inter_dependency=False)),
    "causal_rff-observed": ours(lambda seed: up.CausalRFF(seed=seed, confounding="observed")),
    "causal_rff-latent": ours(lambda seed: up.CausalRFF(seed=seed, confounding="latent")),
}
"""Those with other settings; the others need only a line in the list of contenders."""
