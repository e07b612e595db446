"""Learners from other packages: EconML and stochtree, each imported only when it is used."""

# pyright: basic, reportMissingImports=false, reportArgumentType=false, reportCallIssue=false
# (these packages are optional, and only partly typed)
from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LassoCV, RidgeCV

from unpooled.benchmark.contenders.peer import Learner, PeerPrediction, PeerTable, Predict, logistic, peer

DRAWS = 400
ORTHOGONAL_TREES = 100
"""Fewer than EconML's 500: every prediction fits the nuisances again, weighted by the trees."""
STOCHTREE_SAMPLES = {"num_gfr": 10, "num_burnin": 100, "num_mcmc": 200}


Average = Callable[[Any, np.ndarray], tuple[float, float]]
"""(fitted model, training covariates) → the training people's average effect, and its standard error."""


def _econml(make: Callable[[int], Any], average: Average | None = None) -> Learner:
    """A learner of EconML, with the base models that its user guide uses; intervals if it has an average."""

    def learner(train: PeerTable, valid: PeerTable, seed: int) -> Predict:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make(seed).fit(train.y, train.w, X=train.x)
        rng = np.random.default_rng(seed)

        def predict(x: np.ndarray) -> PeerPrediction:
            effect = np.asarray(model.effect(x)).ravel()
            if average is None:
                return PeerPrediction(effect)
            # EconML's normal intervals are turned into draws, so that all intervals are scored alike.
            sd = np.asarray(model.effect_inference(x).stderr).ravel()
            mean, error = average(model, train.x)
            draws, averages = rng.standard_normal((DRAWS, len(x))), rng.standard_normal(DRAWS)
            return PeerPrediction(effect, None, effect + sd * draws, mean + error * averages)

        return predict

    return learner


def _forest(seed: int) -> RandomForestRegressor:
    return RandomForestRegressor(200, min_samples_leaf=5, random_state=seed)


def _x_learner(seed: int) -> Any:
    from econml.metalearners import XLearner

    return XLearner(models=_forest(seed), propensity_model=logistic())


def _dr_learner(seed: int) -> Any:
    from econml.dr import DRLearner

    return DRLearner(
        model_propensity=logistic(),
        model_regression=_forest(seed),
        model_final=_forest(seed),
        min_propensity=0.05,  # EconML's default of 1e-6 would let a few people have a weight of a million
        random_state=seed,
        cv=3,
    )


def _linear_dml(seed: int) -> Any:
    from econml.dml import LinearDML

    return LinearDML(model_y=LassoCV(), model_t=logistic(), discrete_treatment=True, random_state=seed, cv=3)


def _causal_forest(seed: int) -> Any:
    from econml.dml import CausalForestDML

    return CausalForestDML(
        model_y=_forest(seed),
        model_t=logistic(),
        discrete_treatment=True,
        n_estimators=500,
        random_state=seed,
        cv=3,
    )


def _doubly_robust(model: Any, x: np.ndarray) -> tuple[float, float]:
    """The average that a causal forest corrects by doubly robust residuals."""
    return float(np.squeeze(model.ate_)), float(np.squeeze(model.ate_stderr_))


def _of_effects(model: Any, x: np.ndarray) -> tuple[float, float]:
    """The average of a parametric model's effects."""
    found = model.ate_inference(X=x)
    return float(np.squeeze(found.mean_point)), float(np.squeeze(found.stderr_mean))


def _orthogonal_forest(seed: int) -> Any:
    """The forest of Oprescu, Syrgkanis & Wu (2019), with nuisances fitted anew around every person."""
    from econml.orf import DROrthoForest

    return DROrthoForest(
        n_trees=ORTHOGONAL_TREES,
        min_leaf_size=5,
        propensity_model=logistic(),
        model_Y=RidgeCV(np.logspace(-3, 4, 8)),
        random_state=seed,
        n_jobs=1,
        verbose=0,
    )


def bart(train: PeerTable, valid: PeerTable, seed: int) -> Predict:
    """One BART regression of the outcome per arm, by stochtree; its draws give draws of the effects."""
    from stochtree import BARTModel

    arms = []
    for arm in (0, 1):
        x, y = train.arm(arm)
        model = BARTModel()
        model.sample(X_train=x, y_train=y, general_params={"random_seed": seed + 1}, **STOCHTREE_SAMPLES)
        arms.append(model)

    def drawn(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        control, treated = (np.asarray(arm.predict(X=x, terms="y_hat")) for arm in arms)
        return control, (treated - control).T

    average = drawn(train.x)[1].mean(axis=1)

    def predict(x: np.ndarray) -> PeerPrediction:
        control, draws = drawn(x)
        return PeerPrediction(draws.mean(axis=0), control.mean(axis=1), draws, average)

    return predict


def bcf(train: PeerTable, valid: PeerTable, seed: int) -> Predict:
    """The Bayesian causal forest of stochtree, with a logistic propensity score as its authors recommend."""
    from stochtree import BCFModel

    score = logistic().fit(train.x, train.w)
    model = BCFModel()
    model.sample(
        X_train=train.x,
        Z_train=train.w.astype(float),
        y_train=train.y,
        propensity_train=score.predict_proba(train.x)[:, 1],
        general_params={"random_seed": seed + 1},
        **STOCHTREE_SAMPLES,
    )

    def drawn(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        propensity = score.predict_proba(x)[:, 1]
        found = model.predict(X=x, Z=np.ones(len(x)), propensity=propensity, terms=["y_hat", "cate"])
        draws, treated = (np.asarray(found[name]) for name in ("cate", "y_hat"))
        return treated - draws, draws.T

    average = drawn(train.x)[1].mean(axis=1)

    def predict(x: np.ndarray) -> PeerPrediction:
        control, draws = drawn(x)
        return PeerPrediction(draws.mean(axis=0), control.mean(axis=1), draws, average)

    return predict


ESTIMATORS = {
    "x-learner": peer(_econml(_x_learner)),
    "dr-learner": peer(_econml(_dr_learner)),
    "linear-dml": peer(_econml(_linear_dml, _of_effects)),
    "causal-forest": peer(_econml(_causal_forest, _doubly_robust)),
    "orthogonal-forest": peer(_econml(_orthogonal_forest)),
    "bart": peer(bart),
    "bcf": peer(bcf),
}
