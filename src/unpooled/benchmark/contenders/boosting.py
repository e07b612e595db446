"""Boosted trees of scikit-learn: a T-learner, and an R-learner with cross-fitted nuisances.

They have no intervals. The number of trees is the one at which held-out people are predicted best.
"""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import KFold, cross_val_predict

from unpooled.benchmark.contenders.peer import PeerPrediction, PeerTable, Predict, peer

TREES = {
    "learning_rate": 0.05,
    "max_iter": 500,
    "max_depth": 3,
    "min_samples_leaf": 10,
    "early_stopping": True,
    "validation_fraction": 0.2,
    "n_iter_no_change": 20,
}
FOLDS, SMALLEST_PROPENSITY = 5, 0.05
PENALTY = 1.0
"""Added to the weight of a leaf: people with extreme propensities have hardly any, and huge values."""


def t_learner(train: PeerTable, valid: PeerTable, seed: int) -> Predict:
    """One boosted regression of the outcome per arm."""
    arms = [HistGradientBoostingRegressor(**TREES, random_state=seed).fit(*train.arm(arm)) for arm in (0, 1)]

    def predict(x: np.ndarray) -> PeerPrediction:
        control, treated = (arm.predict(x) for arm in arms)
        return PeerPrediction(treated - control, control)

    return predict


def r_learner(train: PeerTable, valid: PeerTable, seed: int) -> Predict:
    """Nie & Wager's (2021) R-learner: the effect that minimises Σ ((y − m̂) − (w − ê)·τ)².

    m̂ and ê are predictions of people's outcome and treatment by fits without them. The minimum is that of a
    weighted regression of (y − m̂) / (w − ê) with weights (w − ê)².
    """
    folds = KFold(FOLDS, shuffle=True, random_state=seed)
    regressor = HistGradientBoostingRegressor(**TREES, random_state=seed)
    classifier = HistGradientBoostingClassifier(**TREES, random_state=seed)
    outcome = cross_val_predict(regressor, train.x, train.y, cv=folds)
    shares = np.asarray(cross_val_predict(classifier, train.x, train.w, cv=folds, method="predict_proba"))
    residual = train.w - np.clip(shares[:, 1], SMALLEST_PROPENSITY, 1.0 - SMALLEST_PROPENSITY)
    effect = HistGradientBoostingRegressor(**TREES, l2_regularization=PENALTY, random_state=seed)
    effect.fit(train.x, (train.y - outcome) / residual, sample_weight=residual**2)
    return lambda x: PeerPrediction(effect.predict(x))


ESTIMATORS = {"boosted-t-learner": peer(t_learner), "boosted-r-learner": peer(r_learner)}
