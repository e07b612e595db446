"""AIPW's settings: every value checked when the study is read, before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from unpooled.methods.settings import Conditions, MethodSettings


class AIPWSettings(MethodSettings):
    """What a user may choose; the estimand is always the average effect."""

    applies: ClassVar[Conditions] = ((("folds", "trim"), {"estimator": ("aipw", "ipw")}),)

    estimator: Literal["aipw", "ipw", "difference"] = "aipw"
    """Doubly robust; weights of the inverse propensity, normalised by site and arm; or unadjusted means."""
    site_terms: Literal["offsets", "none"] = "offsets"
    """Whether treatment and outcome regressions have an intercept for each site; or sites are all alike."""
    folds: int = Field(default=3, ge=1, le=20)
    """People are judged by regressions that have not seen their fold; 1: by those of everybody."""
    ridge: float = Field(default=1.0, gt=0.0)
    """Penalty on every squared coefficient but the intercept's, in standard units: worth one person or so."""
    trim: float = Field(default=0.01, gt=0.0, lt=0.5)
    """Propensities are clipped to between `trim` and 1 − `trim`."""
    draws: int = Field(default=400, ge=20, le=100_000)
    """Of a normal with the estimate and its standard error; diagnostics hold both exactly."""


@dataclass(frozen=True)
class AIPWContext:
    """What all parties share beside the settings."""

    covariates: int
    sites: int
    outcome_sd: float
