"""Settings of the meta-analysis."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unpooled.methods.settings import MethodSettings


class MetaAnalysisSettings(MethodSettings):
    """Settings of the meta-analysis. Each site's estimate is doubly robust and uses its own people only."""

    pooling: Literal["random", "fixed"] = "random"
    """Whether the effect differs between sites ("random", with the variance of DerSimonian and Laird and the
    modified interval of Hartung and Knapp) or is the same at all sites ("fixed")."""
    folds: int = Field(default=3, ge=1, le=20)
    """Number of cross-fitting folds: each person's scores come from regressions fitted without their fold.
    Set 1 to switch cross-fitting off, for example if a site is very small."""
    repeats: int = Field(default=3, ge=1, le=10)
    """Number of times that people are assigned to folds, each time anew; a site's estimate is the median. It
    has no effect with a single fold."""
    ridge: float | None = Field(default=None, gt=0.0)
    """Ridge penalty on the coefficients of the covariates, in standard units. By default, a penalty for each
    site's regressions is chosen by their fit to held-out people."""
    trim: float = Field(default=0.01, gt=0.0, lt=0.5)
    """Propensities are clipped to [`trim`, 1 − `trim`]. Increase it if a few people dominate the weights."""
    draws: int = Field(default=400, ge=20, le=100_000)
    """Number of draws of the sites' effects given all estimates. The diagnostics contain every estimate
    exactly."""

    @property
    def needs_sites(self) -> bool:
        return True

    @property
    def fold_draws(self) -> int:
        return self.repeats if self.folds > 1 else 1
