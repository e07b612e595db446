"""CausalFI as an estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from unpooled.estimators.base import Estimator


class CausalFI(Estimator):
    """Effects over sites whose confounders have holes.

    Parameters are those of `unpooled.methods.causal_fi.settings.Settings`, where each is explained.

    >>> CausalFI(seed=7).get_params()["structure"]
    'auto'
    """

    method: ClassVar[str] = "causal_fi"

    def __init__(
        self,
        *,
        seed: int = 0,
        inference: str = "compatible",
        draws: int = 160,
        noise_correlation: float = 0.0,
        averaged: str = "completed",
        structure: str = "auto",
        folds: int = 3,
        sweeps: int = 20,
        shifts: Sequence[Mapping[str, Any]] = (),
        hidden: Sequence[int] = (20, 20, 20),
        rounds: int = 300,
        learning_rate: float = 0.03,
        monte_carlo: int = 4,
        imputations: int = 100,
    ) -> None:
        self.seed = seed
        self.inference = inference
        self.draws = draws
        self.noise_correlation = noise_correlation
        self.averaged = averaged
        self.structure = structure
        self.folds = folds
        self.sweeps = sweeps
        self.shifts = shifts
        self.hidden = hidden
        self.rounds = rounds
        self.learning_rate = learning_rate
        self.monte_carlo = monte_carlo
        self.imputations = imputations
