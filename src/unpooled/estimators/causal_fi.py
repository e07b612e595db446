"""CausalFI as an estimator."""

from __future__ import annotations

from typing import ClassVar

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
        structure: str = "auto",
        folds: int = 3,
        sweeps: int = 20,
        draws: int = 160,
        noise_correlation: float = 0.0,
    ) -> None:
        self.seed = seed
        self.structure = structure
        self.folds = folds
        self.sweeps = sweeps
        self.draws = draws
        self.noise_correlation = noise_correlation
