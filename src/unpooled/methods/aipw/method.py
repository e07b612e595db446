"""AIPW's implementation of the `Method` interface."""

from __future__ import annotations

import numpy as np

from unpooled.methods.aipw.effects import REGRESSIONS_ELSEWHERE, conditional, elsewhere, individual
from unpooled.methods.aipw.fit import budget, expected, fit
from unpooled.methods.aipw.model import PooledRegressions
from unpooled.methods.aipw.newton import STEPS
from unpooled.methods.aipw.settings import (
    AIPWContext,
    AIPWSettings,
    context_of,
    outcome_family,
    outcome_model,
)
from unpooled.methods.aipw.stages import Outcome, OutcomeLikelihood, Scores, Treatment, WeightedOutcomes
from unpooled.methods.expected import Course
from unpooled.methods.method import Fit
from unpooled.models.outcome_family import Gaussian
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.records import Draws, Scaling
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage
from unpooled.study.family import Family


class AIPWMethod:
    """See `unpooled.methods.method.Method`. Frequentist estimates of the average effect.

    The outcome regressions are logistic for 0/1 outcomes, log-linear for counts, and else linear. Conditional
    and individual effects are based on them, whichever the estimator.
    """

    Settings = AIPWSettings
    Context = AIPWContext
    takes_incomplete = False
    takes_weights = True
    takes_clusters = True

    def context(self, settings: AIPWSettings, scaling: Scaling, seed: int) -> AIPWContext:
        return context_of(scaling)

    def outcome_model(self, settings: AIPWSettings, family: Family) -> str:
        return outcome_model(family)

    def stages(self, settings: AIPWSettings, context: AIPWContext) -> dict[str, Stage]:
        offsets = _pooling(settings, context).offsets
        family, stages = outcome_family(context), dict[str, Stage](outcome=Outcome(offsets))
        if not isinstance(family, Gaussian):
            stages["outcome_likelihood"] = OutcomeLikelihood(offsets, family)
        if settings.estimator != "difference":
            stages["treatment"] = Treatment(offsets)
        if settings.estimator == "aipw":
            return {**stages, "scores": Scores(settings.trim, family=family)}
        adjusted = settings.estimator == "ipw"
        return {**stages, "weighted_outcomes": WeightedOutcomes(settings.trim, adjusted)}

    def fit(self, settings: AIPWSettings, context: AIPWContext, seed: int) -> Procedure[Fit]:
        return (yield from fit(settings, _pooling(settings, context), seed, context))

    def folds(self, settings: AIPWSettings) -> int:
        return settings.folds if settings.folds > 1 and settings.estimator != "difference" else 0

    def features(self, settings: AIPWSettings, context: AIPWContext) -> int:
        # Sums for each draw of the folds: as many people for each of them as for those of a single draw.
        return (1 + context.covariates) * settings.fold_draws

    def plans(self, settings: AIPWSettings) -> tuple[AIPWSettings, ...]:
        return tuple(dict.fromkeys((settings, settings.changed(repeats=1), settings.changed(folds=1))))

    def budget(self, settings: AIPWSettings, context: AIPWContext) -> dict[str, int]:
        return budget(settings.folds, settings.fold_draws)

    def most_rounds(self, settings: AIPWSettings) -> int:
        return 1 + STEPS

    def expected(self, settings: AIPWSettings, context: AIPWContext) -> Course:
        pooling, draws = _pooling(settings, context), settings.fold_draws
        size = pooling.shape(1, 1)[-1]
        linear = context.family == "continuous"
        return expected(pooling, settings.folds, draws, settings.estimator, system=size, linear=linear)

    def conditional_effects(
        self, settings: AIPWSettings, context: AIPWContext, draws: Draws, rows: Rows, people: Rows
    ) -> np.ndarray:
        return conditional(outcome_family(context), draws.at(int(people.site)), people)

    def outcomes_elsewhere(
        self,
        settings: AIPWSettings,
        context: AIPWContext,
        draws: Draws,
        people: Rows,
        distances: np.ndarray,
        seed: int,
    ) -> np.ndarray:
        return elsewhere(outcome_family(context), draws, people, 0)

    def elsewhere_words(self, settings: AIPWSettings) -> str:
        return REGRESSIONS_ELSEWHERE

    def individual_effects(
        self,
        settings: AIPWSettings,
        context: AIPWContext,
        draws: Draws,
        rows: Rows,
        people: Rows | None,
        seed: int,
    ) -> np.ndarray:
        asked = rows if people is None else people
        return individual(outcome_family(context), draws.at(int(asked.site)), asked, seed)


def _pooling(settings: AIPWSettings, context: AIPWContext) -> PooledRegressions:
    sites = context.sites
    offsets = settings.site_terms == "offsets" and sites > 1
    return PooledRegressions(sites, 1 + context.covariates, offsets)


METHOD = AIPWMethod()
