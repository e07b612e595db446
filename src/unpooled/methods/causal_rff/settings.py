"""CausalRFF's settings: every value checked when the study is read, before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from unpooled.maths.fourier import Kernel
from unpooled.methods.settings import Conditions, MethodSettings
from unpooled.models.outcome_family import Family, family_of


class CausalRFFSettings(MethodSettings):
    """What a user may choose; the defaults are what to use when nothing is known."""

    applies: ClassVar[Conditions] = (
        (("latent",), {"confounding": ("auto", "latent")}),
        (("site_terms",), {"confounding": ("auto", "observed")}),
        (
            ("classes", "starts", "rounds", "sweeps"),
            {"confounding": ("auto", "latent"), "latent": ("categorical", "both")},
        ),
        # `auto` compares with classes whatever `latent` says.
        (("classes", "starts", "rounds", "sweeps"), {"confounding": ("auto",)}),
        (
            ("latent_dimension", "gaussian_rounds", "learning_rate", "monte_carlo", "regulariser", "sampler"),
            {"confounding": ("auto", "latent"), "latent": ("gaussian", "both")},
        ),
    )

    confounding: Literal["auto", "observed", "latent"] = "auto"
    """Whether the covariates are the confounders, or proxies of what is not seen; auto asks the data."""
    latent: Literal["categorical", "gaussian", "both"] = "categorical"
    """What is not seen: one of a few classes, a point as in the paper, or what the data find likelier."""

    kernel: Kernel = "gaussian"
    frequencies: int = Field(default=32, ge=0, le=1000)
    """Random frequencies of the continuous covariates; each gives a cosine and a sine. 0: linear only."""
    orthogonal: bool = True
    fourier_columns: Literal["continuous", "all"] = "continuous"

    site_terms: Literal["offsets", "deviations", "covariance", "transfer", "none"] = "offsets"
    """How a site's regression may differ: by an offset per arm; in every coefficient, equally likely for all
    sites, or with a covariance learned for each pair, or by the paper's λ; or not at all."""

    classes: int | None = Field(default=None, ge=2, le=30)
    """How many latent classes; None: two to eight, by the bound."""
    starts: int = Field(default=4, ge=1, le=50)
    rounds: int = Field(default=30, ge=5, le=1000)
    """Most rounds of variational EM."""
    sweeps: int = Field(default=30, ge=3, le=10_000)
    """Gibbs rounds after it; the last two thirds are kept, with as many chains as `draws` needs."""

    latent_dimension: int = Field(default=5, ge=1, le=100)
    """Of a Gaussian latent confounder."""
    gaussian_rounds: int = Field(default=600, ge=5, le=100_000)
    """Most rounds of Algorithm 1 on its bound."""
    learning_rate: float = Field(default=0.02, gt=0.0, le=1.0)
    monte_carlo: int = Field(default=5, ge=1, le=1000)
    """Draws of everybody's z in each of these rounds."""
    regulariser: float = Field(default=1.0, gt=0.0)
    """ζ: coefficients are a priori N(0, 1/2ζ), in standard units."""
    transfer: float | None = Field(default=None, ge=0.0, le=1.0)
    """λ of every pair of sites: 0, each site by itself; 1, all alike. None: learned for each pair."""
    symmetric: bool = False
    """Whether two sites must take as much from each other."""
    sampler: Literal["metropolis", "proposal"] = "metropolis"
    """Whether a person's z comes from its posterior, or from q in its place."""

    folds: int = Field(default=5, ge=2, le=20)
    draws: int = Field(default=400, ge=20, le=100_000)
    noise_correlation: float = Field(default=0.0, gt=-1.0, lt=1.0)
    """Correlation of a person's two noises: no data can tell it; it matters to individual effects only."""


@dataclass(frozen=True)
class CausalRFFContext:
    """What all parties share beside the settings."""

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
    """Of the continuous latent confounder's functions; empty unless it is Gaussian."""
    observed_frequencies: np.ndarray

    @property
    def binary_outcome(self) -> bool:
        return self.family == "binary"


def outcome_family(context: CausalRFFContext) -> Family:
    """0/1 outcomes by a logit; every other outcome as a number with Gaussian noise."""
    name = "binary" if context.binary_outcome else "continuous"
    return family_of(name, context.outcome_mean, context.outcome_sd, link="logit")
