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
    """Every score that the estimate allows, by name."""
    individual = (test_truth["y1"] - test_truth["y0"]).to_numpy(float)
    conditional = (test_truth["mu1"] - test_truth["mu0"]).to_numpy(float)
    found = {
        "imputation": root_mean_square(estimate.imputation - individual),
        "prediction": root_mean_square(estimate.prediction - conditional),
        "imputation_ate_error": float(abs(estimate.imputation.mean() - individual.mean())),
        "ate_error": float(abs(estimate.prediction.mean() - conditional.mean())),
    }
    if estimate.prediction_draws is not None:
        for level in LEVELS:
            found |= _named(f"cate_{level}", interval_scores(estimate.prediction_draws, conditional, level))
    if estimate.ate_draws is not None:
        truth = np.array([(train_truth["mu1"] - train_truth["mu0"]).mean()])
        for level in LEVELS:
            found |= _named(f"ate_{level}", interval_scores(estimate.ate_draws[:, None], truth, level))
        found["ate_sd"] = float(estimate.ate_draws.std(ddof=1))
    return found


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


def _named(prefix: str, values: dict[str, float]) -> dict[str, float]:
    return {f"{prefix}_{name}": value for name, value in values.items()}
