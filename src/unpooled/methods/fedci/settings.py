"""FedCI's settings: every value checked when the study is read, before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from unpooled.methods.settings import Conditions, MethodSettings


class FedCISettings(MethodSettings):
    """What a user may choose; the defaults are what to use when nothing is known."""

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
    """Exact Gaussian integration (collapsed), or the paper's variational bound."""
    structure: Literal["auto", "projection", "isotropic", "ard", "paper"] = "auto"
    """Shape of the outcome functions; auto weighs projection and isotropic by held-out squared error."""
    kernel: Literal["squared_exponential", "matern32", "matern52"] = "matern52"
    basis: int = Field(default=40, ge=0, le=1000)
    """Basis functions that share one function among sites (isotropic, ard); 0: each site its own function."""
    arms_coupled: bool = True
    """Whether the two arms' functions may be correlated a priori."""
    inter_dependency: bool = True
    """Site shifts g, correlated through the sites' covariate moments."""
    noise_correlation: float = Field(default=0.0, gt=-1.0, lt=1.0)
    """Correlation of a person's two noises: no data can tell it; it matters to individual effects only."""
    folds: int = Field(default=4, ge=2, le=20)
    draws: int = Field(default=400, ge=20, le=100_000)
    evaluations: int | None = Field(default=None, ge=5, le=10_000)
    """At most so many evaluations of the objective, each two rounds (none: the structure's own)."""
    tolerance: float = Field(default=0.02, gt=0.0, le=1.0)
    """Stop when a step lowers the objective by less than so many nats."""
    mean: Literal["linear", "network"] = "linear"
    """Mean functions of the variational bound. They are point estimates, so with few people per covariate
    its intervals are too narrow; the collapsed inference integrates the weights."""
    optimiser: Literal["adam", "adagrad"] = "adam"
    learning_rate: float = Field(default=0.02, gt=0.0, le=1.0)
    rounds: int = Field(default=600, ge=1, le=100_000)
    """At most so many rounds of the variational bound; it stops earlier where it no longer improves."""
    monte_carlo: int = Field(default=4, ge=1, le=1000)
    """Draws of (Ψ, Σ, g) in each round of the variational bound."""
    wishart_degrees: float = Field(default=5.0, ge=2.0)
    """Prior degrees of freedom of Ψ and Σ in the variational bound (the paper used 100)."""
    wishart_mean: float = Field(default=0.5, gt=0.0)
    """Prior mean of Ψ's and Σ's diagonals, in variances of the outcome (the paper: 100, not standardised)."""
    wishart_correlation: float = Field(default=0.5, ge=0.0, lt=1.0)


@dataclass(frozen=True)
class FedCIContext:
    """What all parties share beside the settings."""

    correlation: np.ndarray
    """Between the features of the covariates."""
    site_moments: np.ndarray
    inducing: np.ndarray
    """Inducing inputs: draws with the covariates' correlations and rates, never rows."""
    exact: bool
    """Whether every site is small enough for its own remainder to be kept exactly."""
    share: float
    """Share of all rows in the subsample; 1 if no site is large."""
