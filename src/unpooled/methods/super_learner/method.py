"""The super learner's implementation of the `Method` interface."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np

from unpooled.methods.aipw.settings import outcome_family
from unpooled.methods.causal_forest.settings import CausalForestSettings, effect_plan, nuisance_plan
from unpooled.methods.expected import Course
from unpooled.methods.method import Fit, find
from unpooled.methods.super_learner.effects import arm_draws, individual
from unpooled.methods.super_learner.fit import fit
from unpooled.methods.super_learner.settings import (
    FOREST,
    SuperLearnerContext,
    SuperLearnerSettings,
    candidates_of,
    settings_of,
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
        return SuperLearnerContext(scaling, seed)

    def outcome_model(self, settings: SuperLearnerSettings, family: Family) -> str:
        return "by each of its candidates, and weighs them by their effects"

    def stages(self, settings: SuperLearnerSettings, context: SuperLearnerContext) -> dict[str, Stage]:
        found: dict[str, Stage] = {}
        each = candidates_of(settings, context)
        for name, one in each.items():
            own = one.method.stages(one.settings, one.context)
            found |= {f"{name}/{stage}": value for stage, value in own.items()}
        forest, of_forest = each[FOREST].settings, each[FOREST].context
        assert isinstance(forest, CausalForestSettings)
        effects = tuple(one.method.held_out_effects(one.settings, one.context) for one in each.values())
        offsets = settings.site_terms == "offsets" and of_forest.sites > 1
        nuisance, effect = nuisance_plan(forest, of_forest), effect_plan(forest, of_forest)
        candidates = Candidates(effects, nuisance.trees, offsets)
        family = outcome_family(of_forest)
        return {
            **found,
            "r_loss": RLoss(candidates),
            "unexplained": Unexplained(candidates, effect.trees),
            "scores": StackedScores(settings.trim, candidates=candidates, family=family),
        }

    def fit(self, settings: SuperLearnerSettings, context: SuperLearnerContext, seed: int) -> Procedure[Fit]:
        return (yield from fit(settings, candidates_of(settings, context), seed))

    def folds(self, settings: SuperLearnerSettings) -> int:
        return settings.folds

    def features(self, settings: SuperLearnerSettings, context: SuperLearnerContext) -> int:
        return max(
            one.method.features(one.settings, one.context)
            for one in candidates_of(settings, context).values()
        )

    def plans(self, settings: SuperLearnerSettings) -> tuple[SuperLearnerSettings, ...]:
        # FedCI sends products of many features, for which small sites have too few people.
        fewer = tuple(name for name in settings.candidates if name != "fedci")
        without = settings.changed(candidates=fewer)
        each = (settings, settings.changed(folds=2), without, without.changed(folds=2))
        return tuple(dict.fromkeys(each))

    def budget(self, settings: SuperLearnerSettings, context: SuperLearnerContext) -> dict[str, int]:
        found = {"r_loss": 1, "unexplained": 1, "scores": 1}
        for name, one in candidates_of(settings, context).items():
            own = one.method.budget(one.settings, one.context)
            found |= {f"{name}/{stage}": count for stage, count in own.items()}
        return found

    def most_rounds(self, settings: SuperLearnerSettings) -> int:
        names = settings.candidates
        return 2 + max(find(name).most_rounds(settings_of(settings, name)) for name in names)

    def expected(self, settings: SuperLearnerSettings, context: SuperLearnerContext) -> Course:
        each = [
            one.method.expected(one.settings, one.context).prefixed(f"{name}/")
            for name, one in candidates_of(settings, context).items()
        ]
        found = reduce(Course.beside, each)
        longest = found.longest and replace(found.longest, rounds=found.longest.rounds + 2)
        return replace(found, rounds=found.rounds + 2, longest=longest)

    def conditional_effects(
        self,
        settings: SuperLearnerSettings,
        context: SuperLearnerContext,
        draws: Draws,
        rows: Rows,
        people: Rows,
    ) -> np.ndarray:
        candidates = candidates_of(settings, context)
        family = outcome_family(candidates[FOREST].context)
        means = arm_draws(family, candidates, draws, rows, people)
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
        candidates = candidates_of(settings, context)
        family = outcome_family(candidates[FOREST].context)
        return individual(family, candidates, draws, rows, asked, seed)


METHOD = SuperLearnerMethod()
