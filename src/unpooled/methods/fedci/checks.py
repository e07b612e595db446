"""Checks of the fit itself."""

from __future__ import annotations

import numpy as np

from unpooled.protocol.records import Check

REPLACED = 0.5
"""Largest share of the drawn hyperparameters that may be replaced."""
NOISE_RATIO = 1.1
"""Largest ratio of the noise variances of the two arms that passes, at the lower end of its interval."""


def draws_check(replaced: float) -> Check:
    return Check.at_most(
        "draws of the hyperparameters", replaced, REPLACED,
        "Share of the drawn hyperparameters that the data contradict and that were replaced by others. Above "
        "the threshold, the normal approximation of their posterior is poor, and intervals may be too narrow "
        "or too wide: use more draws, or name a structure.",
    )  # fmt: skip


def noise_check(log_sd: np.ndarray) -> Check:
    """The check of draws [K, 2] of the arms' log noise sd (a variance ratio test of unexplained effects)."""
    lower, upper = np.exp(2.0 * np.quantile(log_sd[:, 1] - log_sd[:, 0], [0.025, 0.975]))
    return Check.at_most(
        "noise of the arms", max(lower, 1.0 / upper), NOISE_RATIO,
        "How many times more the outcome varies in one arm than in the other, given the covariates: lower "
        "end of a 95 % interval of the ratio of variances. Up to the threshold, both arms have about the "
        "same noise. Above it, effects differ between people by more than the model attributes to "
        "covariates. If they do so through a covariate, for example by a sharp interaction, intervals of "
        "conditional effects are too narrow. Average effects do not depend on it.",
        "effects of people",
    )  # fmt: skip
