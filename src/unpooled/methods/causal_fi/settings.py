"""CausalFI's settings: every value checked when the study is read, before anything is sent."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """What a user may choose; the defaults are what to use when nothing is known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    structure: Literal["auto", "linear", "softplus", "index"] = "auto"
    """How an arm's outcome depends on the confounders; auto lets people held out decide."""
    folds: int = Field(default=3, ge=2, le=20)
    """In how many folds they are held out."""
    sweeps: int = Field(default=20, ge=2, le=10_000)
    """Rounds whose draws are kept, from as many chains as `draws` needs."""
    draws: int = Field(default=160, ge=20, le=100_000)
    noise_correlation: float = Field(default=0.0, gt=-1.0, lt=1.0)
    """Correlation of a person's two noises: no data can tell it; it matters to individual effects only."""
