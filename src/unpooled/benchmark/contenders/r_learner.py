"""The R-learner (Nie & Wager 2021) with cross-fitted boosted trees."""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from unpooled.benchmark.contenders.peer import PeerPrediction, PeerTable, Predict, logistic, peer

FOLDS = 5
SMALLEST_PROPENSITY = 0.05
"""Propensities are clipped this far from 0 and 1, as for EconML's learners."""


def r_learner(train: PeerTable, valid: PeerTable, seed: int) -> Predict:
    """Regress (y − m(x)) / (w − e(x)) on x with weights (w − e(x))²; m and e have not seen the person.

    This minimises Σ (y − m(x) − (w − e(x)) τ(x))² over τ.
    """
    smallest = int(min(train.w.sum(), (1 - train.w).sum()))
    folds = StratifiedKFold(max(2, min(FOLDS, smallest)), shuffle=True, random_state=seed)
    # Folds are stratified by arm for both models: a list of them is what scikit-learn accepts for m as well.
    parts = list(folds.split(train.x, train.w))
    outcome = cross_val_predict(_trees(seed), train.x, train.y, cv=parts)
    score = np.asarray(cross_val_predict(logistic(), train.x, train.w, cv=parts, method="predict_proba"))
    residual = train.w - np.clip(score[:, 1], SMALLEST_PROPENSITY, 1.0 - SMALLEST_PROPENSITY)
    # A leaf in which everybody was nearly certain to be treated, or not to be, would be noise.
    effect = _trees(seed, depth=2, least_weight=0.05).fit(
        train.x, (train.y - outcome) / residual, sample_weight=residual**2
    )
    return lambda x: PeerPrediction(effect.predict(x))


def _trees(seed: int, depth: int = 3, least_weight: float = 0.0) -> GradientBoostingRegressor:
    return GradientBoostingRegressor(
        n_estimators=200,
        max_depth=depth,
        learning_rate=0.05,
        subsample=0.8,
        min_weight_fraction_leaf=least_weight,
        random_state=seed,
    )


ESTIMATORS = {"r-learner": peer(r_learner)}
