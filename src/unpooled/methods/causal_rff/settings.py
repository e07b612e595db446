"""Settings of CausalRFF, and the context that all parties share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from unpooled.maths.fourier import Kernel
from unpooled.methods.settings import Conditions, MethodSettings
from unpooled.models.link import Link, link_of
from unpooled.models.outcome_family import Family, family_of


class CausalRFFSettings(MethodSettings):
    """Settings of CausalRFF. The defaults are suitable for most studies."""

    applies: ClassVar[Conditions] = (
        (("latent",), {"confounding": ("auto", "latent")}),
        (("site_terms",), {"confounding": ("auto", "observed")}),
        (
            ("classes", "starts", "rounds", "sweeps"),
            {"confounding": ("auto", "latent"), "latent": ("categorical", "both")},
        ),
        # "auto" includes latent classes whatever `latent` is.
        (("classes", "starts", "rounds", "sweeps"), {"confounding": ("auto",)}),
        (
            ("latent_dimension", "gaussian_rounds", "learning_rate", "monte_carlo", "regulariser", "sampler"),
            {"confounding": ("auto", "latent"), "latent": ("gaussian", "both")},
        ),
    )

    confounding: Literal["auto", "observed", "latent"] = "auto"
    """Whether the covariates are the confounders ("observed") or proxies of a latent confounder ("latent").
    "auto" fits both and chooses by held-out density."""
    latent: Literal["categorical", "gaussian", "both"] = "categorical"
    """The kind of latent confounder: one of a few classes, a Gaussian vector as in the paper, or both kinds
    as candidates to choose from."""

    kernel: Kernel = "gaussian"
    """Kernel that the random Fourier features approximate."""
    frequencies: int = Field(default=32, ge=0, le=1000)
    """Number of random frequencies of the continuous covariates; each gives a cosine and a sine. More capture
    finer detail and send larger messages; 0 gives a linear model."""
    orthogonal: bool = True
    """Whether frequencies are drawn orthogonally, which reduces the error of the approximation."""
    fourier_columns: Literal["continuous", "all"] = "continuous"
    """Covariates that enter the Fourier features; all covariates enter the linear part in any case."""

    site_terms: Literal["offsets", "deviations", "covariance", "transfer", "none"] = "offsets"
    """How a site's regression may differ from the others: "offsets" by an offset per arm; "deviations" in
    every coefficient, exchangeably; "covariance" in every coefficient, with a learned covariance between
    sites; "transfer" by the paper's λ; "none" not at all."""

    classes: int | None = Field(default=None, ge=2, le=30)
    """Classes: number of latent classes. None: chosen from two to eight by the bound."""
    starts: int = Field(default=4, ge=1, le=50)
    """Classes: number of random starts of variational EM for each number of classes."""
    rounds: int = Field(default=30, ge=5, le=1000)
    """Classes: maximum number of rounds of variational EM."""
    sweeps: int = Field(default=30, ge=6, le=10_000)
    """Classes: rounds of Gibbs sampling after EM. The last two thirds are kept, with as many chains as
    `draws` requires."""

    latent_dimension: int = Field(default=5, ge=1, le=100)
    """Gaussian: dimension of the latent confounder."""
    gaussian_rounds: int = Field(default=600, ge=5, le=100_000)
    """Gaussian: maximum number of rounds of Algorithm 1; it stops earlier once the bound stops improving."""
    learning_rate: float = Field(default=0.02, gt=0.0, le=1.0)
    """Gaussian: step size of the optimiser; lower it if the bound becomes non-finite."""
    monte_carlo: int = Field(default=5, ge=1, le=1000)
    """Gaussian: draws of everybody's z per round; more reduce the noise of the gradient."""
    regulariser: float = Field(default=1.0, gt=0.0)
    """Gaussian: ζ; the prior of the coefficients is N(0, 1/2ζ) in standard units."""
    transfer: float | None = Field(default=None, ge=0.0, le=1.0)
    """A fixed λ for every pair of sites: 0 fits each site separately, 1 makes all sites equal. None: learned
    for each pair."""
    symmetric: bool = False
    """Whether λ must be the same in both directions of a pair of sites."""
    sampler: Literal["metropolis", "proposal"] = "metropolis"
    """Gaussian: whether a person's z is drawn from its posterior by Metropolis steps, or directly from q."""

    folds: int = Field(default=5, ge=2, le=20)
    """Number of folds for the held-out density that chooses between candidates."""
    draws: int = Field(default=400, ge=20, le=100_000)
    """Number of posterior draws; increase it for smoother interval limits."""
    noise_correlation: float = Field(default=0.0, gt=-1.0, lt=1.0)
    """Assumed correlation of the noise in a person's two potential outcomes. The data cannot identify it;
    it affects individual effects only."""

    @property
    def needs_both_arms(self) -> str:
        return ""

    @property
    def differs_by_site(self) -> bool:
        return self.confounding != "observed" or self.site_terms != "none"


@dataclass(frozen=True)
class CausalRFFContext:
    """Values that all parties share in addition to the settings."""

    covariates: int
    rates: np.ndarray
    """Share of ones of each 0/1 feature; NaN for numeric features."""
    frequencies: np.ndarray
    fourier_columns: np.ndarray
    sites: int
    people: int
    family: str
    outcome_mean: float
    outcome_sd: float
    latent_frequencies: np.ndarray
    """Frequencies of the functions of the Gaussian latent confounder; empty unless it is used."""
    observed_frequencies: np.ndarray
    """Frequencies of the functions of (y, x); empty unless the Gaussian latent confounder is used."""

    @property
    def binary_outcome(self) -> bool:
        return self.family == "binary"

    @property
    def link(self) -> Link | None:
        """The log link of counts; None for other outcomes."""
        counts = self.family == "count"
        return link_of(self.family, self.outcome_mean, self.outcome_sd) if counts else None


def outcome_family(context: CausalRFFContext) -> Family:
    """A logit for 0/1 outcomes, negative binomial counts; all other outcomes are treated as Gaussian."""
    mean, sd = context.outcome_mean, context.outcome_sd
    return family_of(context.family, mean, sd, link="logit", counts="negative_binomial")
