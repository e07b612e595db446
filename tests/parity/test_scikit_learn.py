"""One arm at one site is an ordinary Gaussian process: scikit-learn's, with the same kernel."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, RationalQuadratic

from oracle.world import posterior_of
from unpooled.methods.fedci.conditionals import WeightDraws, conditional_effect, factual
from unpooled.methods.fedci.model import INTERCEPT_SD, Kernel
from unpooled.methods.fedci.posterior import Posterior
from unpooled.methods.fedci.stages import KernelEvidence
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import make_rows

pytestmark = pytest.mark.slow

KERNELS = {
    "matern52": lambda length: Matern(length, nu=2.5),
    "matern32": lambda length: Matern(length, nu=1.5),
    "squared_exponential": RBF,
    "rational_quadratic": lambda length: RationalQuadratic(length, alpha=1.0),
}
FREE = {
    "length": np.array([0.2]),
    "arms": np.array([-0.3, 0.0, -0.1]),
    "linear": np.array([-1.0, 0.0, -1.0]),
    "propensity_slope": np.array(0.0),
    "noise": np.array([-0.7, -0.7]),
}
RNG = np.random.default_rng(4)
X, NEW = RNG.normal(size=(14, 3)), RNG.normal(size=(6, 3))
Y = np.sin(X[:, 0]) + X[:, 1] + 0.3 * RNG.normal(size=14)


@pytest.fixture(params=KERNELS)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


def _evidence(family: str) -> KernelEvidence:
    structure = Kernel(
        site_distances=jnp.zeros((1, 1)),
        family=family,
        shifts=False,
        coupled=False,
        noisy=True,
        inducing=jnp.zeros((0, 3)),
        ard=False,
        tied=False,
    )
    return KernelEvidence(structure, link=None, diagonal=False)


def _scikit_learn(family: str) -> GaussianProcessRegressor:
    length = float(np.exp(FREE["length"][0]) * np.sqrt(3))
    function = ConstantKernel(np.exp(2 * FREE["arms"][0])) * KERNELS[family](length)
    linear = ConstantKernel(np.exp(2 * FREE["linear"][0])) * DotProduct(sigma_0=0.0, sigma_0_bounds="fixed")
    noise = float(np.exp(2 * FREE["noise"][0])) + 1e-8
    kernel = function + linear + ConstantKernel(INTERCEPT_SD**2)
    return GaussianProcessRegressor(kernel, alpha=noise, optimizer=None).fit(X, Y)


def _rows(covariates: np.ndarray, outcome: np.ndarray, fold: np.ndarray) -> Any:
    return make_rows(covariates, np.zeros(len(outcome)), outcome, fold=fold, site=0)


def _posterior(evidence: KernelEvidence, rows: Any, fold: int) -> Posterior:
    # Without a direction of the propensities, the model has scikit-learn's kernels only.
    fixed = {"fold": np.array(fold), "noise": FREE["noise"], "propensity": np.zeros(3)}
    parameters = Parameters(FREE, fixed)
    statistics = evidence.statistics(parameters, rows)
    stacked = Statistics(statistics.summed, jax.tree.map(lambda leaf: leaf[None], statistics.per_site))
    return posterior_of(evidence, parameters, stacked)


def _units(evidence: KernelEvidence) -> np.ndarray:
    """Noise at which weights are their mean, then one unit away along each axis of their posterior."""
    size = 2 * (evidence.structure.width + 1)
    return np.concatenate([np.zeros((1, size)), np.eye(size)])


def test_the_log_marginal_likelihood_is_scikit_learns(family: str) -> None:
    posterior = _posterior(_evidence(family), _rows(X, Y, np.zeros(14)), -1)
    constant = 0.5 * len(Y) * np.log(2.0 * np.pi)
    expected = _scikit_learn(family).log_marginal_likelihood_value_
    np.testing.assert_allclose(posterior.regression.log_evidence - constant, expected, rtol=1e-8)


def test_predictions_for_people_held_out_are_scikit_learns(family: str) -> None:
    evidence = _evidence(family)
    fold = np.array([0] * 14 + [1] * 6)
    rows = _rows(np.concatenate([X, NEW]), np.concatenate([Y, np.full(6, 50.0)]), fold)
    beta, shift = _posterior(evidence, rows, 1).weights()
    weights = rows.present * (rows.fold != 1)
    predicted, _ = factual(evidence, WeightDraws(FREE, beta, shift[:, :, 0]), rows, weights)
    np.testing.assert_allclose(np.asarray(predicted)[0, 14:20], _scikit_learn(family).predict(NEW), rtol=1e-8)


def test_variances_for_people_held_out_are_scikit_learns(family: str) -> None:
    evidence = _evidence(family)
    fold = np.array([0] * 14 + [1] * 6)
    rows = _rows(np.concatenate([X, NEW]), np.concatenate([Y, np.full(6, 50.0)]), fold)
    beta, shift = _posterior(evidence, rows, 1).weights(_units(evidence))
    weights = rows.present * (rows.fold != 1)
    each, remainder = map(
        np.asarray, factual(evidence, WeightDraws(FREE, beta, shift[:, :, 0]), rows, weights)
    )
    slopes = each[1:] - each[0]
    variance = np.sum(slopes**2, axis=0) + remainder
    sd = _scikit_learn(family).predict(NEW, return_std=True)[1]
    np.testing.assert_allclose(variance[14:20], sd**2, rtol=1e-7)


def test_means_and_variances_of_the_function_are_scikit_learns(family: str) -> None:
    evidence, rows = _evidence(family), _rows(X, Y, np.zeros(14))
    beta, _ = _posterior(evidence, rows, -1).weights(_units(evidence))
    # The second arm has no people; with its weights at zero, minus the effect is the first arm's function.
    beta[:, 1] = 0.0
    draws = WeightDraws(FREE, beta, np.zeros((len(beta), 2)))
    mean, variance = conditional_effect(evidence, draws, rows, NEW)
    slopes = np.asarray(mean)[1:] - np.asarray(mean)[0]
    second_arm = np.exp(2 * FREE["arms"][2])
    spread = np.sum(slopes**2, axis=0) + np.asarray(variance) - second_arm
    expected, sd = _scikit_learn(family).predict(NEW, return_std=True)
    np.testing.assert_allclose(-np.asarray(mean)[0], expected, rtol=1e-8)
    np.testing.assert_allclose(spread, sd**2, rtol=1e-7)
