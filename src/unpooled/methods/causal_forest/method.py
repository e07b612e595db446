"""The causal forest's implementation of the `Method` interface."""

from __future__ import annotations

import numpy as np

from unpooled.maths.operations import Operations
from unpooled.maths.trees import BINS
from unpooled.methods.aipw.settings import outcome_family
from unpooled.methods.causal_forest.effects import TREES_ELSEWHERE, Sizes, arm_draws, conditional, individual
from unpooled.methods.causal_forest.fit import fit
from unpooled.methods.causal_forest.settings import (
    CausalForestContext,
    CausalForestSettings,
    context_of,
    effect_plan,
    nuisance_plan,
)
from unpooled.methods.causal_forest.stages import Effect, ForestEffects, ForestScores, Outcome, Treatment
from unpooled.methods.expected import Course, Expected, keys, numbers, whole
from unpooled.methods.method import Fit
from unpooled.models.trees import DEEPEST, Leaves, Level, Plan, Values
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.records import Arrays, Draws, Parameters, Scaling
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage
from unpooled.study.family import Family


class CausalForestMethod:
    """See `unpooled.methods.method.Method`. Effects of people by a forest, averages by robust scores."""

    Settings = CausalForestSettings
    Context = CausalForestContext
    takes_incomplete = False
    takes_weights = True
    takes_clusters = False

    def context(self, settings: CausalForestSettings, scaling: Scaling, seed: int) -> CausalForestContext:
        return context_of(scaling)

    def outcome_model(self, settings: CausalForestSettings, family: Family) -> str:
        return "by its mean, with regression forests; its distribution is not modelled"

    def stages(self, settings: CausalForestSettings, context: CausalForestContext) -> dict[str, Stage]:
        nuisance, effect = nuisance_plan(settings, context), effect_plan(settings, context)
        offsets = settings.site_terms == "offsets" and context.sites > 1
        growing, honest = (Effect(nuisance.trees, offsets, one) for one in (False, True))
        return {
            "values": Values(),
            "treatment": Level(Treatment(), nuisance.trees, nuisance.depth),
            "outcome": Level(Outcome(), nuisance.trees, nuisance.depth),
            "effect": Level(growing, effect.trees, effect.depth),
            "leaves": Leaves(honest, effect.trees),
            "scores": ForestScores(
                settings.trim,
                trees=effect.trees,
                nuisance_trees=nuisance.trees,
                offsets=offsets,
                family=outcome_family(context),
            ),
        }

    def fit(self, settings: CausalForestSettings, context: CausalForestContext, seed: int) -> Procedure[Fit]:
        return (yield from fit(settings, context, seed))

    def folds(self, settings: CausalForestSettings) -> int:
        return 0

    def features(self, settings: CausalForestSettings, context: CausalForestContext) -> int:
        return 1  # sums of products of features are not sent

    def plans(self, settings: CausalForestSettings) -> tuple[CausalForestSettings, ...]:
        return (settings,)

    def budget(self, settings: CausalForestSettings, context: CausalForestContext) -> dict[str, int]:
        nuisance, effect = nuisance_plan(settings, context).depth, effect_plan(settings, context).depth
        once = dict.fromkeys(("values", "leaves", "scores"), 1)
        return {**once, "treatment": nuisance, "outcome": nuisance, "effect": effect}

    def most_rounds(self, settings: CausalForestSettings) -> int:
        return 2 * DEEPEST + 3

    def expected(self, settings: CausalForestSettings, context: CausalForestContext) -> Course:
        nuisance, effect = nuisance_plan(settings, context), effect_plan(settings, context)
        edges = {"edges": whole(context.covariates * (BINS - 1))}
        value = {"value": numbers(nuisance.trees * 2**nuisance.depth)}
        forests = {name: {**_sent(nuisance), **value} for name in ("treatment", "outcome")}
        known, both = {**edges, **forests}, numbers(effect.trees * 2**effect.depth)
        last = {**known, "effect": {**_sent(effect), "num": both, "den": both}}
        questions = [
            Expected("values", 1, Parameters(fixed={"all": numbers()})),
            *(_growing(name, nuisance, edges) for name in ("treatment", "outcome")),
            _growing("effect", effect, known),
            Expected("leaves", 1, Parameters(fixed={**known, **_sent(effect)})),
            Expected("scores", 1, Parameters(fixed=last)),
        ]
        return Course(nuisance.depth + effect.depth + 3, tuple(questions))

    def conditional_effects(
        self,
        settings: CausalForestSettings,
        context: CausalForestContext,
        draws: Draws,
        rows: Rows,
        people: Rows,
    ) -> np.ndarray:
        return conditional(outcome_family(context), _sizes(settings), draws.shared, people)

    def held_out_effects(self, settings: CausalForestSettings, context: CausalForestContext) -> ForestEffects:
        return ForestEffects(settings.trees)

    def outcomes_elsewhere(
        self,
        settings: CausalForestSettings,
        context: CausalForestContext,
        draws: Draws,
        people: Rows,
        distances: np.ndarray,
        seed: int,
    ) -> np.ndarray:
        return arm_draws(outcome_family(context), _sizes(settings), draws.shared, people)

    def elsewhere_words(self, settings: CausalForestSettings) -> str:
        return TREES_ELSEWHERE

    def individual_effects(
        self,
        settings: CausalForestSettings,
        context: CausalForestContext,
        draws: Draws,
        rows: Rows,
        people: Rows | None,
        seed: int,
    ) -> np.ndarray:
        asked = rows if people is None else people
        return individual(outcome_family(context), _sizes(settings), draws.shared, asked, seed)


def _sizes(settings: CausalForestSettings) -> Sizes:
    return Sizes(settings.trees, settings.nuisance_trees)


def _sent(plan: Plan) -> Arrays:
    """The shapes of trees as they are sent."""
    inner = whole(plan.trees * (2**plan.depth - 1))
    return {"feature": inner, "cut": inner, "key": keys()}


def _growing(stage: str, plan: Plan, fixed: Arrays) -> Expected:
    own = {"tried": whole(plan.trees * plan.tried), "level": whole()}
    solve = Operations(numbers=8.0 * plan.bytes_of_feature * plan.tried)
    return Expected(
        stage, plan.depth, Parameters(fixed={**fixed, **_sent(plan), **own}), plan.depth, solve=solve
    )


METHOD = CausalForestMethod()
