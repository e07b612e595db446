"""Settings of the causal forest, and the context that all parties share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from unpooled.methods.aipw.settings import AIPWContext
from unpooled.methods.settings import MethodSettings
from unpooled.models.trees import Plan, depth_for
from unpooled.protocol.records import Scaling

BAG = 5
"""Trees that are grown on the same half of the people."""


class CausalForestSettings(MethodSettings):
    """Settings of the causal forest."""

    trees: int = Field(default=100, ge=20, le=2000, multiple_of=BAG)
    """Number of trees whose leaves estimate effects, in bags of five that share a random half of the people.
    With more trees, effects vary less with the seed, and each round has more bytes."""
    nuisance_trees: int = Field(default=50, ge=10, le=1000, multiple_of=BAG)
    """Number of trees of each of the two forests for the propensity and the mean outcome."""
    leaf: int = Field(default=5, ge=2, le=1000)
    """Fewest people on either side of a split, in the half of a tree's people by whom it is grown; for
    effects, people count by how uncertain their treatment is. Larger leaves smooth more."""
    site_terms: Literal["offsets", "none"] = "offsets"
    """Whether each site corrects propensities and mean outcomes by its own mean residual, which it does not
    tell. Use "none" only if the sites are known to be comparable."""
    trim: float = Field(default=0.01, gt=0.0, lt=0.5)
    """In doubly robust scores, propensities are clipped to [`trim`, 1 − `trim`]."""
    draws: int = Field(default=400, ge=20, le=100_000)
    """Number of draws of effects from normal distributions with their estimates and standard errors."""

    @property
    def models_outcomes(self) -> bool:
        return False

    @property
    def needs_both_arms(self) -> str:
        if self.site_terms == "offsets":
            return (
                "use FedCI or, if outcomes do not depend on the site given the covariates, set site_terms = "
                "'none': with a correction for each site, propensities at these sites would be 0 or 1"
            )
        return ""


@dataclass(frozen=True)
class CausalForestContext(AIPWContext):
    """Values that all parties share in addition to the settings."""

    people: int = 0


def context_of(scaling: Scaling) -> CausalForestContext:
    """The context of a study."""
    return CausalForestContext(
        covariates=len(scaling.mean),
        sites=scaling.sites,
        outcome_sd=scaling.outcome_sd,
        outcome_mean=scaling.outcome_mean,
        family=scaling.family,
        people=scaling.people,
    )


def nuisance_plan(settings: CausalForestSettings, context: CausalForestContext) -> Plan:
    """The forests of the propensity and the mean outcome: each tree is grown on a half of the people."""
    leaf, people = 2.0 * settings.leaf, 0.5 * context.people
    return Plan(settings.nuisance_trees, depth_for(people, leaf), context.covariates, leaf / people)


def effect_plan(settings: CausalForestSettings, context: CausalForestContext) -> Plan:
    """The forest of effects: each tree is grown on half of its bag's half of the people."""
    people = 0.25 * context.people
    return Plan(settings.trees, depth_for(people, settings.leaf), context.covariates, settings.leaf / people)
