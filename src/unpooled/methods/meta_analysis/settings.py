"""The meta-analysis's settings: every value checked when the study is read, before anything is sent."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unpooled.methods.settings import MethodSettings


class MetaAnalysisSettings(MethodSettings):
    """What a user may choose; each site's estimate is a doubly robust one, made of its own people alone."""

    effects: Literal["random", "fixed"] = "random"
    """Whether the sites' effects differ, with a variance by DerSimonian and Laird; or are one."""
    folds: int = Field(default=3, ge=1, le=20)
    """People are judged by regressions that have not seen their fold; 1: by those of everybody."""
    ridge: float = Field(default=1.0, gt=0.0)
    """Penalty on every squared coefficient but the intercept's, in standard units: worth one person or so."""
    trim: float = Field(default=0.01, gt=0.0, lt=0.5)
    """Propensities are clipped to between `trim` and 1 − `trim`."""
    draws: int = Field(default=400, ge=20, le=100_000)
    """Of the sites' effects, given all estimates; diagnostics hold every estimate exactly."""
