"""Meta-learners and forests by EconML, with gradient boosting or forests inside, as its guides do."""

# pyright: basic, reportMissingImports=false, reportArgumentType=false, reportCallIssue=false
# (the packages are an extra, and half typed)
from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from econml.dml import CausalForestDML, LinearDML
from econml.dr import DRLearner
from econml.metalearners import XLearner
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LassoCV

from unpooled.benchmark.contenders.peer import Learner, Predict, Said, Table, logistic, peer


def _outcome(seed: int) -> RandomForestRegressor:
    return RandomForestRegressor(200, min_samples_leaf=5, random_state=seed)


def _x_learner(seed: int) -> Any:
    return XLearner(models=_outcome(seed), propensity_model=logistic())


def _dr_learner(seed: int) -> Any:
    return DRLearner(
        model_propensity=logistic(),
        model_regression=_outcome(seed),
        model_final=_outcome(seed),
        min_propensity=0.05,  # as little as 1e-6 is EconML's own: a few people would then weigh a million
        random_state=seed,
        cv=3,
    )


def _linear_dml(seed: int) -> Any:
    return LinearDML(model_y=LassoCV(), model_t=logistic(), discrete_treatment=True, random_state=seed, cv=3)


def _causal_forest(seed: int) -> Any:
    return CausalForestDML(
        model_y=_outcome(seed),
        model_t=logistic(),
        discrete_treatment=True,
        n_estimators=500,
        random_state=seed,
        cv=3,
    )


def _learner(make: Any, *, interval: bool) -> Learner:
    def learner(train: Table, valid: Table, seed: int) -> Predict:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make(seed).fit(train.y, train.w, X=train.x)
        rng = np.random.default_rng(seed)

        def predict(x: np.ndarray) -> Said:
            effect = np.asarray(model.effect(x)).ravel()
            if not interval:
                return Said(effect)
            # EconML gives normal intervals: as draws, so that they are scored like everybody's.
            sd = np.asarray(model.effect_inference(x).stderr).ravel()
            return Said(effect, None, effect + sd * rng.standard_normal((400, len(x))))

        return predict

    return learner


ESTIMATORS = {
    "x-learner": peer(_learner(_x_learner, interval=False)),
    "dr-learner": peer(_learner(_dr_learner, interval=False)),
    "linear-dml": peer(_learner(_linear_dml, interval=True)),
    "causal-forest": peer(_learner(_causal_forest, interval=True)),
}
