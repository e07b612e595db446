"""The implementation of the `Method` interface by boosted arms."""

from __future__ import annotations

import numpy as np

from unpooled.maths.operations import Operations
from unpooled.maths.trees import BINS
from unpooled.methods.aipw.settings import outcome_family
from unpooled.methods.boosted_arms.effects import arm_draws, conditional, individual
from unpooled.methods.boosted_arms.fit import fit
from unpooled.methods.boosted_arms.settings import PARTS, BoostedArmsSettings, plan
from unpooled.methods.boosted_arms.stages import (
    BoostedEffects,
    BoostedScores,
    HeldOut,
    Models,
    Residuals,
    Start,
)
from unpooled.methods.causal_forest.effects import TREES_ELSEWHERE
from unpooled.methods.causal_forest.settings import CausalForestContext, context_of
from unpooled.methods.expected import Course, Expected, keys, numbers, whole
from unpooled.methods.method import Fit
from unpooled.models.trees import Level, Values
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.records import Draws, Parameters, Scaling
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage
from unpooled.study.family import Family


class BoostedArmsMethod:
    """See `unpooled.methods.method.Method`. Effects of people by boosted trees in each arm."""

    Settings = BoostedArmsSettings
    Context = CausalForestContext
    takes_incomplete = False
    takes_weights = True
    takes_clusters = False

    def context(self, settings: BoostedArmsSettings, scaling: Scaling, seed: int) -> CausalForestContext:
        return context_of(scaling)

    def outcome_model(self, settings: BoostedArmsSettings, family: Family) -> str:
        return "by its mean in each arm, with boosted trees; its distribution is not modelled"

    def stages(self, settings: BoostedArmsSettings, context: CausalForestContext) -> dict[str, Stage]:
        models, growing = _models(settings), plan(settings, context)
        return {
            "values": Values(),
            "start": Start(settings.folds),
            "trees": Level(Residuals(models), growing.trees, growing.depth),
            "held_out": HeldOut(models),
            "scores": BoostedScores(
                settings.trim,
                models=models,
                offsets=settings.site_terms == "offsets" and context.sites > 1,
                family=outcome_family(context),
            ),
        }

    def fit(self, settings: BoostedArmsSettings, context: CausalForestContext, seed: int) -> Procedure[Fit]:
        return (yield from fit(settings, context, seed))

    def folds(self, settings: BoostedArmsSettings) -> int:
        return settings.folds

    def features(self, settings: BoostedArmsSettings, context: CausalForestContext) -> int:
        return 1  # sums of products of features are not sent

    def plans(self, settings: BoostedArmsSettings) -> tuple[BoostedArmsSettings, ...]:
        fewer = (settings.changed(folds=folds) for folds in (3, 2) if folds < settings.folds)
        return (settings, *fewer)

    def budget(self, settings: BoostedArmsSettings, context: CausalForestContext) -> dict[str, int]:
        once = dict.fromkeys(("values", "start", "held_out", "scores"), 1)
        return {**once, "trees": settings.steps * settings.depth}

    def most_rounds(self, settings: BoostedArmsSettings) -> int:
        return settings.steps * settings.depth + 3

    def expected(self, settings: BoostedArmsSettings, context: CausalForestContext) -> Course:
        growing, all_ = plan(settings, context), Parameters(fixed={"all": numbers()})
        inner, outer = growing.trees * (2**growing.depth - 1), growing.trees * 2**growing.depth
        models = {
            "start": numbers(settings.models),
            "steps": whole(len(PARTS)),
            "feature": whole(settings.steps * inner),
            "cut": whole(settings.steps * inner),
            "value": numbers(settings.steps * outer),
        }
        known = {"edges": whole(context.covariates * (BINS - 1)), "models": models}
        own = {
            "feature": whole(inner), "cut": whole(inner), "key": keys(), "level": whole(),
            "tried": whole(growing.trees * growing.tried),
        }  # fmt: skip
        rounds = settings.steps * settings.depth
        solve = Operations(numbers=8.0 * growing.bytes_of_feature * growing.tried)
        last = Parameters(fixed=known)
        questions = (
            Expected("values", 1, all_),
            Expected("start", 1, all_),
            Expected("trees", rounds, Parameters(fixed={**known, **own}), rounds, solve=solve),
            Expected("held_out", 1, last),
            Expected("scores", 1, last),
        )
        return Course(rounds + 3, questions)

    def conditional_effects(
        self,
        settings: BoostedArmsSettings,
        context: CausalForestContext,
        draws: Draws,
        rows: Rows,
        people: Rows,
    ) -> np.ndarray:
        return conditional(outcome_family(context), _models(settings), draws.shared, people)

    def held_out_effects(self, settings: BoostedArmsSettings, context: CausalForestContext) -> BoostedEffects:
        return BoostedEffects(_models(settings))

    def outcomes_elsewhere(
        self,
        settings: BoostedArmsSettings,
        context: CausalForestContext,
        draws: Draws,
        people: Rows,
        distances: np.ndarray,
        seed: int,
    ) -> np.ndarray:
        return arm_draws(outcome_family(context), _models(settings), draws.shared, people)

    def elsewhere_words(self, settings: BoostedArmsSettings) -> str:
        return TREES_ELSEWHERE

    def individual_effects(
        self,
        settings: BoostedArmsSettings,
        context: CausalForestContext,
        draws: Draws,
        rows: Rows,
        people: Rows | None,
        seed: int,
    ) -> np.ndarray:
        asked = rows if people is None else people
        return individual(outcome_family(context), _models(settings), draws.shared, asked, seed)


def _models(settings: BoostedArmsSettings) -> Models:
    return Models(settings.folds, settings.steps, settings.rate)


METHOD = BoostedArmsMethod()
