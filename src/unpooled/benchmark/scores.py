"""Scores of one cell. Two tasks, never mixed: imputation and prediction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

LEVELS = (50, 80, 95)


@dataclass(frozen=True)
class Estimate:
    """What a contender says of the test people, in the order of the case's sites.

    imputation: effects of people whose treatment and outcome are known; prediction: from covariates alone.
    The draws [K, …] are there for contenders that have an idea of their own error.
    """

    imputation: np.ndarray
    prediction: np.ndarray
    prediction_draws: np.ndarray | None = None
    ate_draws: np.ndarray | None = None


def score(estimate: Estimate, test_truth: pd.DataFrame, train_truth: pd.DataFrame) -> dict[str, float]:
    """Every score that the estimate and what is known of the truth allow, by name.

    `ate` is the average over the training people where a contender says it, else over the test people.
    """
    individual = (test_truth["y1"] - test_truth["y0"]).to_numpy(float)
    conditional = (test_truth["mu1"] - test_truth["mu0"]).to_numpy(float)
    draws, ate_draws = estimate.prediction_draws, estimate.ate_draws
    found = {"ate": float((estimate.prediction if ate_draws is None else ate_draws).mean())}
    if _known(individual):
        found["imputation"] = root_mean_square(estimate.imputation - individual)
        found["imputation_ate_error"] = float(abs(estimate.imputation.mean() - individual.mean()))
    if _known(conditional):
        found["prediction"] = root_mean_square(estimate.prediction - conditional)
        found["ate_error"] = float(abs(estimate.prediction.mean() - conditional.mean()))
        found |= {} if draws is None else _intervals("cate", draws, conditional)
    if ate_draws is not None:
        found["ate_sd"] = float(ate_draws.std(ddof=1))
        lower, upper = np.quantile(ate_draws, [0.025, 0.975])
        found |= {"ate_95_lower": float(lower), "ate_95_upper": float(upper)}
        average = (train_truth["mu1"] - train_truth["mu0"]).to_numpy(float).mean(keepdims=True)
        if _known(average):
            found |= {"ate_truth": float(average[0])} | _intervals("ate", ate_draws[:, None], average)
    return found


def _known(truth: np.ndarray) -> bool:
    """Nobody knows the counterfactuals of real people: their truth is NaN."""
    return not np.isnan(truth).any()


def _intervals(name: str, draws: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    return {
        f"{name}_{level}_{measure}": value
        for level in LEVELS
        for measure, value in interval_scores(draws, truth, level).items()
    }


def root_mean_square(error: np.ndarray) -> float:
    """√PEHE, where the errors are those of effects.

    >>> root_mean_square(np.array([3.0, -4.0, 0.0, 0.0]))
    2.5
    """
    return float(np.sqrt(np.mean(np.square(error))))


def interval_scores(draws: np.ndarray, truth: np.ndarray, level: int) -> dict[str, float]:
    """Coverage, mean width and mean interval score of equal-tailed intervals.

    The interval score is the width plus 2/α times how far outside the truth is (Gneiting & Raftery 2007).
    """
    alpha = 1.0 - level / 100.0
    lower, upper = np.quantile(draws, [alpha / 2.0, 1.0 - alpha / 2.0], axis=0)
    missed = np.maximum(lower - truth, 0.0) + np.maximum(truth - upper, 0.0)
    return {
        "coverage": float(np.mean((lower <= truth) & (truth <= upper))),
        "width": float(np.mean(upper - lower)),
        "score": float(np.mean(upper - lower + 2.0 / alpha * missed)),
    }
