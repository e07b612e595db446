"""Bayesian trees by stochtree: BART per arm, and the Bayesian causal forest."""

# pyright: basic, reportMissingImports=false, reportArgumentType=false, reportCallIssue=false
# (the packages are an extra, and half typed)
from __future__ import annotations

import numpy as np
from stochtree import BARTModel, BCFModel

from unpooled.benchmark.contenders.peer import Predict, Said, Table, logistic, peer

SAMPLES = {"num_gfr": 10, "num_burnin": 100, "num_mcmc": 400}


def bart(train: Table, valid: Table, seed: int) -> Predict:
    """A BART regression per arm: outcomes, so effects with draws."""
    arms = []
    for arm in (0, 1):
        x, y = train.arm(arm)
        model = BARTModel()
        model.sample(X_train=x, y_train=y, general_params={"random_seed": seed + 1}, **SAMPLES)
        arms.append(model)

    def predict(x: np.ndarray) -> Said:
        control, treated = (np.asarray(arm.predict(X=x, terms="y_hat")) for arm in arms)
        draws = (treated - control).T
        return Said(draws.mean(axis=0), control.mean(axis=1), draws)

    return predict


def bcf(train: Table, valid: Table, seed: int) -> Predict:
    """The causal forest with a logistic propensity score, as its authors advise."""
    score = logistic().fit(train.x, train.w)
    model = BCFModel()
    model.sample(
        X_train=train.x,
        Z_train=train.w.astype(float),
        y_train=train.y,
        propensity_train=score.predict_proba(train.x)[:, 1],
        general_params={"random_seed": seed + 1},
        **SAMPLES,
    )

    def predict(x: np.ndarray) -> Said:
        propensity = score.predict_proba(x)[:, 1]
        found = model.predict(X=x, Z=np.ones(len(x)), propensity=propensity, terms=["y_hat", "cate"])
        draws, treated = (np.asarray(found[name]) for name in ("cate", "y_hat"))
        return Said(draws.mean(axis=1), (treated - draws).mean(axis=1), draws.T)

    return predict


ESTIMATORS = {function.__name__: peer(function) for function in (bart, bcf)}
