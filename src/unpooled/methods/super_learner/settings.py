"""Settings of the super learner, and the settings and contexts of its candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from unpooled.methods.method import find
from unpooled.methods.settings import MethodSettings
from unpooled.protocol.records import Scaling

CandidateName = Literal["fedci", "causal_forest", "boosted_arms"]
FOREST: CandidateName = "causal_forest"
CONSTANT = "constant"
"""The candidate in which everybody has the same effect; it needs no fit of its own."""


class SuperLearnerSettings(MethodSettings):
    """Settings of the super learner."""

    candidates: tuple[CandidateName, ...] = ("fedci", "causal_forest", "boosted_arms")
    """The methods that are fitted side by side, beside a constant effect. The causal forest is always one:
    its propensities and mean outcomes are what all of them are judged by."""
    folds: int = Field(default=4, ge=2, le=20)
    """Number of folds of the candidates."""
    simplicity: float = Field(default=2.0, ge=0.0, le=100.0)
    """By how much the log likelihood of held-out people must rise for the effect not to be constant. With 0,
    chance alone can make effects differ."""
    site_terms: Literal["offsets", "none"] = "offsets"
    """Whether sites may differ given the covariates, in all candidates."""
    trim: float = Field(default=0.01, gt=0.0, lt=0.5)
    """In doubly robust scores, propensities are clipped to [`trim`, 1 − `trim`]."""
    draws: int = Field(default=400, ge=20, le=100_000)
    """Number of draws of effects."""

    @model_validator(mode="after")
    def _with_forest(self) -> Self:
        if FOREST not in self.candidates or len(set(self.candidates)) < len(self.candidates):
            raise ValueError("'candidates' must name 'causal_forest', and each method once")
        return self

    @property
    def differs_by_site(self) -> bool:
        return any(settings_of(self, name).differs_by_site for name in self.candidates)

    @property
    def compares_sites(self) -> bool:
        return any(settings_of(self, name).compares_sites for name in self.candidates)

    @property
    def models_outcomes(self) -> bool:
        return False

    @property
    def needs_both_arms(self) -> str:
        return settings_of(self, FOREST).needs_both_arms


@dataclass(frozen=True)
class Candidate:
    """A method with its settings and context."""

    method: Any
    settings: MethodSettings
    context: Any


@dataclass(frozen=True)
class SuperLearnerContext:
    """Values that all parties share in addition to the settings."""

    scaling: Scaling
    seed: int


def settings_of(settings: SuperLearnerSettings, name: str) -> MethodSettings:
    """The settings of a candidate that follow from those of the super learner."""
    common: dict[str, object] = {"draws": settings.draws}
    if name == "fedci":
        own = {"folds": settings.folds, "inter_dependency": settings.site_terms == "offsets"}
    else:
        own = {"site_terms": settings.site_terms, "trim": settings.trim}
        own |= {"folds": settings.folds} if name == "boosted_arms" else {}
    return find(name).Settings.model_validate({**common, **own})


def candidates_of(settings: SuperLearnerSettings, context: SuperLearnerContext) -> dict[str, Candidate]:
    """The candidates of a study by name."""
    found = {}
    for name in settings.candidates:
        method, own = find(name), settings_of(settings, name)
        found[name] = Candidate(method, own, method.context(own, context.scaling, context.seed))
    return found
