"""Baselines: no effect, a constant effect, a ridge regression per arm, a Gaussian process per arm."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel
from sklearn.linear_model import LinearRegression, RidgeCV

from unpooled.benchmark.contenders.peer import PeerPrediction, PeerTable, Predict, peer


def zero(train: PeerTable, valid: PeerTable, seed: int) -> Predict:
    return lambda x: PeerPrediction(np.zeros(len(x)))


def constant(train: PeerTable, valid: PeerTable, seed: int) -> Predict:
    """The coefficient of the treatment in a linear regression, for everybody."""
    effect = LinearRegression().fit(np.column_stack([train.x, train.w]), train.y).coef_[-1]
    return lambda x: PeerPrediction(np.full(len(x), effect))


def ridge(train: PeerTable, valid: PeerTable, seed: int) -> Predict:
    """A ridge regression per arm, with the penalty chosen by leave-one-out cross-validation."""
    arms = [RidgeCV(np.logspace(-3, 4, 30)).fit(*train.arm(arm)) for arm in (0, 1)]

    def predict(x: np.ndarray) -> PeerPrediction:
        control, treated = (arm.predict(x) for arm in arms)
        return PeerPrediction(treated - control, control)

    return predict


def gp(train: PeerTable, valid: PeerTable, seed: int) -> Predict:
    """An isotropic Gaussian process with a linear part per arm, as fitted by scikit-learn."""
    arms = [_process(*train.arm(arm), seed) for arm in (0, 1)]
    rng = np.random.default_rng(seed)

    def predict(x: np.ndarray) -> PeerPrediction:
        both: list[Any] = [arm.predict(x, return_std=True) for arm in arms]
        (control, control_sd), (treated, treated_sd) = both
        # scikit-learn returns the sd of an outcome; its noise is not part of the effect.
        variance = sum(
            np.maximum(sd**2 - _noise(arm), 0.0)
            for sd, arm in zip((control_sd, treated_sd), arms, strict=True)
        )
        effect = treated - control
        draws = effect + np.sqrt(variance) * rng.standard_normal((400, len(x)))
        return PeerPrediction(effect, control, draws)

    return predict


def _process(x: np.ndarray, y: np.ndarray, seed: int) -> GaussianProcessRegressor:
    linear = ConstantKernel(0.1) * DotProduct(1.0)
    kernel = ConstantKernel(1.0) * RBF(np.sqrt(x.shape[1])) + linear + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=1, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x, y)


def _noise(model: GaussianProcessRegressor) -> float:
    fitted: Any = model
    return float(fitted.kernel_.k2.noise_level * fitted._y_train_std**2)


ESTIMATORS = {function.__name__: peer(function) for function in (zero, constant, ridge, gp)}
ESTIMATORS["ridge-indicators"] = peer(ridge, indicators=True)
