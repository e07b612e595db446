"""The super learner's implementation of the `Method` interface."""

from __future__ import annotations

from functools import reduce

import numpy as np

from unpooled.methods.aipw.settings import outcome_family
from unpooled.methods.causal_forest.settings import CausalForestSettings, effect_plan, nuisance_plan
from unpooled.methods.expected import Course
from unpooled.methods.method import Fit
from unpooled.methods.super_learner.effects import arm_draws, individual
from unpooled.methods.super_learner.fit import fit
from unpooled.methods.super_learner.settings import (
    FOREST,
    SuperLearnerContext,
    SuperLearnerSettings,
    candidate,
    candidate_settings,
)
from unpooled.methods.super_learner.stages import Candidates, RLoss, StackedScores, Unexplained
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.records import Draws, Scaling
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage
from unpooled.study.family import Family


class SuperLearnerMethod:
    """See `unpooled.methods.method.Method`. Several methods, weighted by a causal loss on held-out people."""

    Settings = SuperLearnerSettings
    Context = SuperLearnerContext
    takes_incomplete = False
    takes_weights = False
    takes_clusters = False

    def context(self, settings: SuperLearnerSettings, scaling: Scaling, seed: int) -> SuperLearnerContext:
        return SuperLearnerContext(
            {name: candidate(settings, name, scaling, seed) for name in settings.candidates}
        )

    def outcome_model(self, settings: SuperLearnerSettings, family: Family) -> str:
        return "by each of its candidates, and weighs them by their effects"

    def stages(self, settings: SuperLearnerSettings, context: SuperLearnerContext) -> dict[str, Stage]:
        found: dict[str, Stage] = {}
        for name, one in context.candidates.items():
            own = one.method.stages(one.settings, one.context)
            found |= {f"{name}/{stage}": value for stage, value in own.items()}
        forest = context.candidates[FOREST].settings
        assert isinstance(forest, CausalForestSettings)
        effects = tuple(
            one.method.held_out_effects(one.settings, one.context) for one in context.candidates.values()
        )
        offsets = settings.site_terms == "offsets" and context.forest.sites > 1
        nuisance, effect = nuisance_plan(forest, context.forest), effect_plan(forest, context.forest)
        candidates = Candidates(effects, nuisance.trees, offsets)
        family = outcome_family(context.forest)
        return {
            **found,
            "r_loss": RLoss(candidates),
            "unexplained": Unexplained(candidates, effect.trees),
            "scores": StackedScores(settings.trim, candidates=candidates, family=family),
        }

    def fit(self, settings: SuperLearnerSettings, context: SuperLearnerContext, seed: int) -> Procedure[Fit]:
        return (yield from fit(settings, context, seed))

    def folds(self, settings: SuperLearnerSettings) -> int:
        return settings.folds

    def features(self, settings: SuperLearnerSettings, context: SuperLearnerContext) -> int:
        return max(one.method.features(one.settings, one.context) for one in context.candidates.values())

    def plans(self, settings: SuperLearnerSettings) -> tuple[SuperLearnerSettings, ...]:
        # FedCI sends products of many features, for which small sites have too few people.
        fewer = tuple(name for name in settings.candidates if name != "fedci")
        without = settings.changed(candidates=fewer)
        each = (settings, settings.changed(folds=2), without, without.changed(folds=2))
        return tuple(dict.fromkeys(each))

    def budget(self, settings: SuperLearnerSettings, context: SuperLearnerContext) -> dict[str, int]:
        found = {"r_loss": 1, "unexplained": 1, "scores": 1}
        for name, one in context.candidates.items():
            own = one.method.budget(one.settings, one.context)
            found |= {f"{name}/{stage}": count for stage, count in own.items()}
        return found

    def most_rounds(self, settings: SuperLearnerSettings) -> int:
        methods = (candidate_settings(settings, name) for name in settings.candidates)
        return 2 + max(method.most_rounds(own) for method, own in methods)

    def expected(self, settings: SuperLearnerSettings, context: SuperLearnerContext) -> Course:
        each = [
            one.method.expected(one.settings, one.context).prefixed(f"{name}/")
            for name, one in context.candidates.items()
        ]
        found = reduce(Course.beside, each)
        return Course(found.rounds + 2, found.questions, found.longest)

    def conditional_effects(
        self,
        settings: SuperLearnerSettings,
        context: SuperLearnerContext,
        draws: Draws,
        rows: Rows,
        people: Rows,
    ) -> np.ndarray:
        means = arm_draws(outcome_family(context.forest), context, draws, rows, people)
        return means[..., 1] - means[..., 0]

    def individual_effects(
        self,
        settings: SuperLearnerSettings,
        context: SuperLearnerContext,
        draws: Draws,
        rows: Rows,
        people: Rows | None,
        seed: int,
    ) -> np.ndarray:
        asked = rows if people is None else people
        return individual(outcome_family(context.forest), context, draws, rows, asked, seed)


METHOD = SuperLearnerMethod()
