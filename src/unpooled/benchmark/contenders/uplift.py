"""X- and R-learner by causalml, with its boosted trees."""

# pyright: basic, reportMissingImports=false, reportArgumentType=false, reportCallIssue=false
# (the packages are an extra, and half typed)
from __future__ import annotations

from typing import Any

import numpy as np
from causalml.inference.meta import BaseRRegressor, BaseXRegressor
from xgboost import XGBRegressor

from unpooled.benchmark.contenders.peer import Learner, Predict, Said, Table, logistic, peer


def _trees(seed: int) -> XGBRegressor:
    return XGBRegressor(n_estimators=200, max_depth=3, learning_rate=0.05, subsample=0.8, random_state=seed)


def _learner(make: Any) -> Learner:
    def learner(train: Table, valid: Table, seed: int) -> Predict:
        score = logistic().fit(train.x, train.w)
        propensity = score.predict_proba(train.x)[:, 1]
        model = make(_trees(seed), control_name=0)
        model.fit(X=train.x, treatment=train.w, y=train.y, p=propensity)

        def predict(x: np.ndarray) -> Said:
            return Said(np.asarray(model.predict(X=x, p=score.predict_proba(x)[:, 1])).ravel())

        return predict

    return learner


ESTIMATORS = {
    "x-learner-causalml": peer(_learner(BaseXRegressor)),
    "r-learner-causalml": peer(_learner(BaseRRegressor)),
}
