"""Settings of FedCI, and the context that all parties share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from unpooled.methods.settings import Conditions, MethodSettings
from unpooled.study.family import Family


class FedCISettings(MethodSettings):
    """Settings of FedCI. The defaults are suitable for most studies."""

    applies: ClassVar[Conditions] = (
        (("structure", "evaluations", "tolerance"), {"inference": ("collapsed",)}),
        (("basis",), {"inference": ("collapsed",), "structure": ("auto", "isotropic", "ard")}),
        (("folds",), {"inference": ("collapsed",), "structure": ("auto",)}),
        (
            (
                "mean",
                "optimiser",
                "learning_rate",
                "rounds",
                "monte_carlo",
                "wishart_degrees",
                "wishart_mean",
                "wishart_correlation",
            ),
            {"inference": ("variational",)},
        ),
    )

    inference: Literal["collapsed", "variational"] = "collapsed"
    """The inference: "collapsed" integrates the Gaussian parts exactly; "variational" is the paper's bound,
    for comparison."""
    structure: Literal["auto", "projection", "isotropic", "ard", "paper"] = "auto"
    """Structure of the outcome functions. "auto" stacks "projection" and "isotropic" by held-out squared
    error; name one structure to save rounds, or "paper" for the paper's kernel."""
    kernel: Literal["squared_exponential", "matern32", "matern52", "rational_quadratic"] = "matern52"
    """Kernel of the Gaussian processes; "squared_exponential" assumes smoother functions."""
    basis: int = Field(default=40, ge=0, le=1000)
    """Number of basis functions shared by all sites ("isotropic" and "ard"). More capture finer detail and
    send larger messages; with 0 each site has its own function."""
    arms_coupled: bool = True
    """Whether the outcome functions of the two arms may be correlated a priori."""
    inter_dependency: bool = True
    """Whether sites have shifts g, correlated through the sites' covariate moments. Set False if the sites
    are known not to differ."""
    noise_correlation: float = Field(default=0.0, gt=-1.0, lt=1.0)
    """Assumed correlation of the noise in a person's two potential outcomes. The data cannot identify it;
    it affects individual effects only."""
    folds: int = Field(default=4, ge=2, le=20)
    """Number of folds for the held-out errors that weight the structures."""
    draws: int = Field(default=400, ge=20, le=100_000)
    """Number of posterior draws; increase it for smoother interval limits."""
    evaluations: int | None = Field(default=None, ge=5, le=10_000)
    """Maximum number of evaluations of the objective, of two rounds each. None: the structure's default."""
    tolerance: float = Field(default=0.02, gt=0.0, le=1.0)
    """The minimisation stops when a step lowers the objective by less than this many nats."""
    mean: Literal["linear", "network"] = "linear"
    """Variational: mean functions of the bound. They are point estimates, so with few people per covariate
    the intervals are too narrow; the collapsed inference integrates the weights."""
    optimiser: Literal["adam", "adagrad"] = "adam"
    """Variational: the stochastic optimiser."""
    learning_rate: float = Field(default=0.02, gt=0.0, le=1.0)
    """Variational: step size of the optimiser; lower it if the bound becomes non-finite."""
    rounds: int = Field(default=600, ge=1, le=100_000)
    """Variational: maximum number of rounds; the fit stops earlier once the bound stops improving."""
    monte_carlo: int = Field(default=4, ge=1, le=1000)
    """Variational: draws of (Ψ, Σ, g) per round; more reduce the noise of the gradient."""
    wishart_degrees: float = Field(default=5.0, ge=2.0)
    """Variational: prior degrees of freedom of Ψ and Σ (the paper used 100)."""
    wishart_mean: float = Field(default=0.5, gt=0.0)
    """Variational: prior mean of the diagonals of Ψ and Σ, in variances of the outcome (the paper used 100,
    without standardising)."""
    wishart_correlation: float = Field(default=0.5, ge=0.0, lt=1.0)
    """Variational: prior correlation between the arms in Ψ and Σ."""

    @property
    def compares_sites(self) -> bool:
        return self.inter_dependency

    @property
    def needs_both_arms(self) -> str:
        return ""

    @property
    def differs_by_site(self) -> bool:
        return self.inter_dependency


@dataclass(frozen=True)
class FedCIContext:
    """Values that all parties share in addition to the settings."""

    correlation: np.ndarray
    """Correlation matrix of the features of the covariates."""
    site_distances: np.ndarray
    """Mean squared differences of the sites' covariate moments from those of the reference sites."""
    inducing: np.ndarray
    """Inducing inputs: simulated rows with the covariates' correlations and rates, not real people."""
    family: Family
    """The outcome's family."""
    outcome_mean: float
    outcome_sd: float
    exact: bool
    """Whether every site is small enough for an exact remainder."""
    large: bool
    """Whether some site is so large, or sites are so many, that the fit starts on a subsample."""
    interval: int
    """Every how many-th site is in the subsample."""
    share: float | None
    """Share of all rows in the subsample; None at the sites, which do not know each other's sizes."""
