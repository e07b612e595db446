"""FedCI as an estimator."""

from __future__ import annotations

from typing import ClassVar

from unpooled.estimators.base import Estimator


class FedCI(Estimator):
    """Bayesian effects with Gaussian processes over sites that share no rows.

    Parameters are those of `unpooled.methods.fedci.settings.Settings`, where each is explained.

    >>> FedCI(seed=7).get_params()["structure"]
    'auto'
    """

    method: ClassVar[str] = "fedci"

    def __init__(
        self,
        *,
        seed: int = 0,
        inference: str = "collapsed",
        structure: str = "auto",
        kernel: str = "matern52",
        basis: int = 40,
        arms_coupled: bool = True,
        inter_dependency: bool = True,
        noise_correlation: float = 0.0,
        folds: int = 4,
        draws: int = 400,
        evaluations: int | None = None,
        tolerance: float = 0.02,
        mean: str = "linear",
        optimiser: str = "adam",
        learning_rate: float = 0.02,
        rounds: int = 600,
        monte_carlo: int = 4,
        wishart_degrees: float = 5.0,
        wishart_mean: float = 0.5,
        wishart_correlation: float = 0.5,
    ) -> None:
        self.seed = seed
        self.inference = inference
        self.structure = structure
        self.kernel = kernel
        self.basis = basis
        self.arms_coupled = arms_coupled
        self.inter_dependency = inter_dependency
        self.noise_correlation = noise_correlation
        self.folds = folds
        self.draws = draws
        self.evaluations = evaluations
        self.tolerance = tolerance
        self.mean = mean
        self.optimiser = optimiser
        self.learning_rate = learning_rate
        self.rounds = rounds
        self.monte_carlo = monte_carlo
        self.wishart_degrees = wishart_degrees
        self.wishart_mean = wishart_mean
        self.wishart_correlation = wishart_correlation
