"""Checks of the fit itself."""

from __future__ import annotations

import numpy as np

from unpooled.models.calibration import NoiseOfArms
from unpooled.protocol.records import Check

REPLACED = 0.5
"""Largest share of the drawn hyperparameters that may be replaced."""


def draws_check(replaced: float) -> Check:
    return Check.at_most(
        "draws of the hyperparameters", replaced, REPLACED,
        "Share of the drawn hyperparameters that the data contradict and that were replaced by others. Above "
        "the threshold, the normal approximation of their posterior is poor, and intervals may be too narrow "
        "or too wide: use more draws, or name a structure.",
    )  # fmt: skip


def noise_of_arms(log_sd: np.ndarray) -> NoiseOfArms:
    """The arms' noise from draws [K, 2] of its log sd, for fits that predict nobody held out."""
    apart = 2.0 * (log_sd[:, 1] - log_sd[:, 0])
    return NoiseOfArms(np.exp(2.0 * log_sd.mean(axis=0)), float(apart.std()))
