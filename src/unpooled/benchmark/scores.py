"""The scores of one cell, separately for each task: imputation, prediction and conditional effects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

LEVELS = (50, 80, 95)


@dataclass(frozen=True)
class Estimate:
    """A contender's estimates for the test people, in the order of the case's sites.

    `imputation` holds effects of people whose treatment and outcome are known, `prediction` effects from
    covariates alone; both are NaN for contenders that estimate only averages. The draws [K, …] are given by
    contenders that quantify their uncertainty. `ate` is the training people's average effect, if it is not
    the mean of `ate_draws`. `training` holds effects of the training people from covariates alone, in the
    order of the training sites, where everybody trains in one fit.
    """

    imputation: np.ndarray
    prediction: np.ndarray
    prediction_draws: np.ndarray | None = None
    ate_draws: np.ndarray | None = None
    ate: float | None = None
    training: np.ndarray | None = None


def score(estimate: Estimate, test_truth: pd.DataFrame, train_truth: pd.DataFrame) -> dict[str, float]:
    """All scores that can be computed from the estimate and the known part of the truth, by name.

    `ate` is the average effect over the training people if the contender estimates it, else over the test
    people. `ate_error` is the error of the test people's average, `in_sample_ate_error` that of the training
    people's. `in_sample_prediction` is the error of effects of the training people. `outcome_sd`, of the
    scored people's untreated outcomes, is a unit in which data sets can be compared. `conditional` is the
    error relative to the expected effect given the observed values; with missing covariates, no method can
    reach a `prediction` error of 0.
    """
    individual = _difference(test_truth, "y")
    expected = _difference(test_truth, "mu")
    found = {"ate": _average(estimate)}
    if _known(individual, estimate.imputation):
        found["imputation"] = root_mean_square(estimate.imputation - individual)
        found["imputation_ate_error"] = float(abs(estimate.imputation.mean() - individual.mean()))
    if _known(expected, estimate.prediction):
        found["prediction"] = root_mean_square(estimate.prediction - expected)
        found["ate_error"] = float(abs(estimate.prediction.mean() - expected.mean()))
        found["outcome_sd"] = float(test_truth["y0"].to_numpy(float).std())
        found |= _intervals("cate", estimate.prediction_draws, expected)
    trained = _difference(train_truth, "mu")
    if estimate.training is not None and _known(trained, estimate.training):
        found["in_sample_prediction"] = root_mean_square(estimate.training - trained)
    if "conditional" in test_truth and _known(estimate.prediction):
        conditional = test_truth["conditional"].to_numpy(float)
        found["conditional"] = root_mean_square(estimate.prediction - conditional)
        found |= _intervals("conditional", estimate.prediction_draws, conditional)
    return found | _averages(estimate, trained.mean(keepdims=True))


def _difference(truth: pd.DataFrame, of: str) -> np.ndarray:
    return (truth[f"{of}1"] - truth[f"{of}0"]).to_numpy(float)


def _average(estimate: Estimate) -> float:
    if estimate.ate is not None:
        return estimate.ate
    return float((estimate.prediction if estimate.ate_draws is None else estimate.ate_draws).mean())


def _averages(estimate: Estimate, average: np.ndarray) -> dict[str, float]:
    """The scores of the training people's average effect."""
    draws, found = estimate.ate_draws, {}
    if draws is not None:
        lower, upper = np.quantile(draws, [0.025, 0.975])
        found |= {
            "ate_sd": float(draws.std(ddof=1)),
            "ate_95_lower": float(lower),
            "ate_95_upper": float(upper),
        }
    if not _known(average) or (draws is None and estimate.ate is None):
        return found
    found |= {
        "ate_truth": float(average[0]),
        "in_sample_ate_error": abs(_average(estimate) - float(average[0])),
    }
    return found | _intervals("ate", None if draws is None else draws[:, None], average)


def _known(*values: np.ndarray) -> bool:
    """Whether no value is NaN; the truth about real people is NaN, since counterfactuals are unknown."""
    return not any(np.isnan(value).any() for value in values)


def _intervals(name: str, draws: np.ndarray | None, truth: np.ndarray) -> dict[str, float]:
    if draws is None:
        return {}
    return {
        f"{name}_{level}_{measure}": value
        for level in LEVELS
        for measure, value in interval_scores(draws, truth, level).items()
    }


def root_mean_square(error: np.ndarray) -> float:
    """The root mean square of errors; √PEHE if they are errors of individual effects.

    >>> root_mean_square(np.array([3.0, -4.0, 0.0, 0.0]))
    2.5
    """
    return float(np.sqrt(np.mean(np.square(error))))


def interval_scores(draws: np.ndarray, truth: np.ndarray, level: int) -> dict[str, float]:
    """Coverage, mean width and mean interval score of equal-tailed intervals.

    The interval score is the width plus 2/α times the distance of the truth from the interval (Gneiting &
    Raftery 2007).
    """
    alpha = 1.0 - level / 100.0
    lower, upper = np.quantile(draws, [alpha / 2.0, 1.0 - alpha / 2.0], axis=0)
    missed = np.maximum(lower - truth, 0.0) + np.maximum(truth - upper, 0.0)
    return {
        "coverage": float(np.mean((lower <= truth) & (truth <= upper))),
        "width": float(np.mean(upper - lower)),
        "score": float(np.mean(upper - lower + 2.0 / alpha * missed)),
    }
