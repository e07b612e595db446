"""Settings of boosted arms, the context that all parties share, and the order of the trees."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unpooled.methods.causal_forest.settings import CausalForestContext
from unpooled.methods.settings import MethodSettings
from unpooled.models.trees import Plan

PARTS = ("control", "treated", "propensity")
"""What is boosted: the outcome in both arms, and the treatment."""
TOGETHER = 5
"""Trees by which a model grows in one step; their mean is added."""
KEPT = 0.8
"""Share of a model's people by whom each of its trees is grown."""


class BoostedArmsSettings(MethodSettings):
    """Settings of boosted arms."""

    steps: int = Field(default=16, ge=1, le=200)
    """Most steps of boosting. People who are held out decide how many of them are used."""
    rate: float = Field(default=0.5, gt=0.0, le=1.0)
    """Share of what the trees of a step predict that is added. With a smaller rate, use more steps."""
    depth: int = Field(default=3, ge=1, le=6)
    """Depth of the trees: how many covariates may interact. Each level is a round."""
    leaf: int = Field(default=5, ge=2, le=1000)
    """Fewest people on either side of a split."""
    folds: int = Field(default=5, ge=2, le=20)
    """Number of folds. Each is left out by one of the models, whose mean predicts."""
    site_terms: Literal["offsets", "none"] = "offsets"
    """Whether each site corrects propensities and mean outcomes by its own mean residual, which it does not
    tell. Use "none" only if the sites are known to be comparable."""
    trim: float = Field(default=0.01, gt=0.0, lt=0.5)
    """In doubly robust scores, propensities are clipped to [`trim`, 1 − `trim`]."""
    draws: int = Field(default=400, ge=20, le=100_000)
    """Number of draws of effects from normal distributions with their estimates and standard errors."""

    @property
    def needs_both_arms(self) -> str:
        return "leave these sites out, or use FedCI: propensities at these sites would be 0 or 1"

    @property
    def models(self) -> int:
        """Number of models that are boosted side by side: each part without each fold."""
        return len(PARTS) * self.folds


def plan(settings: BoostedArmsSettings, context: CausalForestContext) -> Plan:
    """The trees of one step of all models. A model is grown on the people of an arm in all folds but one."""
    people = KEPT * context.people * (1.0 - 1.0 / settings.folds)
    smallest = 2.0 * settings.leaf / people
    return Plan(settings.models * TOGETHER, settings.depth, context.covariates, smallest)
