"""Settings of AIPW, and the context that all parties share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax.numpy as jnp
from pydantic import Field

from unpooled.methods.settings import Conditions, MethodSettings
from unpooled.models.outcome_family import Gaussian, Logit, NegativeBinomial
from unpooled.protocol.records import Scaling


class AIPWSettings(MethodSettings):
    """Settings of AIPW."""

    applies: ClassVar[Conditions] = ((("folds", "repeats", "trim"), {"estimator": ("aipw", "ipw")}),)

    estimator: Literal["aipw", "ipw", "difference"] = "aipw"
    """The estimator: "aipw" is doubly robust, "ipw" weights by the inverse propensity (normalised by site and
    arm), "difference" compares unadjusted means and is meant as a baseline."""
    site_terms: Literal["offsets", "none"] = "offsets"
    """Whether the treatment and outcome regressions have a separate intercept for each site. Use "none" only
    if the sites are known to be comparable."""
    folds: int = Field(default=3, ge=1, le=20)
    """Number of cross-fitting folds: each person's scores come from regressions fitted without their fold.
    Set 1 to switch cross-fitting off, for example if an arm is very small."""
    repeats: int = Field(default=3, ge=1, le=10)
    """Number of times that people are assigned to folds, each time anew; the estimate is the median. It has
    no effect with a single fold."""
    ridge: float | None = Field(default=None, gt=0.0)
    """Ridge penalty on the coefficients of the covariates, in standard units. By default, a penalty for each
    regression is chosen by its fit to held-out people."""
    trim: float = Field(default=0.01, gt=0.0, lt=0.5)
    """Propensities are clipped to [`trim`, 1 − `trim`]. Increase it if a few people dominate the weights."""
    draws: int = Field(default=400, ge=20, le=100_000)
    """Number of draws from the normal distribution given by the estimate and its standard error. The
    diagnostics contain both exactly."""

    @property
    def differs_by_site(self) -> bool:
        return self.site_terms != "none"

    @property
    def models_outcomes(self) -> bool:
        return False

    @property
    def needs_both_arms(self) -> str:
        if self.estimator == "aipw" and self.site_terms == "none":
            return ""
        choose = (
            "use FedCI, or CausalRFF with confounding = 'observed', which learn how sites differ; or, if "
            "outcomes do not depend on the site given the covariates, estimator = 'aipw' with site_terms = "
            "'none', whose outcome regressions are common to all sites and predict the arm that a site lacks"
        )
        if self.estimator == "aipw":
            return f"{choose}. With an intercept for each site, propensities at these sites would be 0 or 1"
        return (
            f"{choose}. '{self.estimator}' has no such regressions: it compares the mean outcomes of both "
            "arms within each site, whatever site_terms is"
        )

    @property
    def fold_draws(self) -> int:
        return self.repeats if self.folds > 1 and self.estimator != "difference" else 1


@dataclass(frozen=True)
class AIPWContext:
    """Values that all parties share in addition to the settings."""

    covariates: int
    sites: int
    outcome_sd: float
    outcome_mean: float = 0.0
    family: str = "continuous"


def context_of(scaling: Scaling) -> AIPWContext:
    """The context of a study."""
    width = len(scaling.mean)
    return AIPWContext(width, scaling.sites, scaling.outcome_sd, scaling.outcome_mean, scaling.family)


def outcome_family(context: AIPWContext) -> Gaussian | Logit | NegativeBinomial:
    """The family of whose mean the outcome regressions are: a logit of 0/1 outcomes, the logarithm of counts.

    The counts of single people are drawn from a negative binomial distribution.
    """
    scale = jnp.asarray(context.outcome_mean), jnp.asarray(context.outcome_sd)
    if context.family == "binary":
        return Logit(*scale)
    return NegativeBinomial(*scale) if context.family == "count" else Gaussian()


def outcome_model(family: str) -> str:
    """How the outcome is modelled, in words."""
    return {
        "continuous": "by a linear regression in each arm; its distribution is not modelled",
        "binary": "by a logistic regression in each arm",
        "count": "by a log-linear regression in each arm, with a variance proportional to the mean",
    }[family]
