"""The meta-analysis's implementation of the `Method` interface."""

from __future__ import annotations

import numpy as np

from unpooled.methods.aipw.effects import REGRESSIONS_ELSEWHERE, conditional, elsewhere, individual
from unpooled.methods.aipw.fit import budget, expected
from unpooled.methods.aipw.newton import STEPS
from unpooled.methods.aipw.settings import AIPWContext, context_of, outcome_family, outcome_model
from unpooled.methods.aipw.stages import Scores
from unpooled.methods.expected import Course
from unpooled.methods.meta_analysis.fit import SiteRegressions, fit
from unpooled.methods.meta_analysis.settings import MetaAnalysisSettings
from unpooled.methods.meta_analysis.stages import SiteOutcome, SiteOutcomeLikelihood, SiteTreatment
from unpooled.methods.method import Fit
from unpooled.models.outcome_family import Gaussian
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.records import Draws, Scaling
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage
from unpooled.study.family import Family


class MetaAnalysisMethod:
    """See `unpooled.methods.method.Method`. Doubly robust estimates per site, pooled by inverse variance.

    A site's effect is its estimate shrunk towards the pooled one (empirical Bayes, with τ² treated as known),
    and `ate` averages the sites' effects over their people. With fixed effects this is exactly the pooled
    estimate and its standard error. With random effects it is the average over the people of these sites;
    the pooled estimate, the mean over a population of sites, is in the diagnostics under `overall`.

    Effects in groups of people are pooled in the same way; mean outcomes under control are each site's own.
    """

    Settings = MetaAnalysisSettings
    Context = AIPWContext
    takes_incomplete = False
    takes_weights = True
    takes_clusters = True

    def context(self, settings: MetaAnalysisSettings, scaling: Scaling, seed: int) -> AIPWContext:
        return context_of(scaling)

    def outcome_model(self, settings: MetaAnalysisSettings, family: Family) -> str:
        return outcome_model(family)

    def stages(self, settings: MetaAnalysisSettings, context: AIPWContext) -> dict[str, Stage]:
        family = outcome_family(context)
        scores = Scores(settings.trim, family=family)
        plain: dict[str, Stage] = {"outcome": SiteOutcome(), "treatment": SiteTreatment(), "scores": scores}
        if isinstance(family, Gaussian):
            return plain
        return {**plain, "outcome_likelihood": SiteOutcomeLikelihood(family)}

    def fit(self, settings: MetaAnalysisSettings, context: AIPWContext, seed: int) -> Procedure[Fit]:
        pooling = SiteRegressions(context.sites, 1 + context.covariates)
        return (yield from fit(settings, pooling, seed, context))

    def folds(self, settings: MetaAnalysisSettings) -> int:
        return settings.folds if settings.folds > 1 else 0

    def features(self, settings: MetaAnalysisSettings, context: AIPWContext) -> int:
        return (1 + context.covariates) * settings.fold_draws

    def plans(self, settings: MetaAnalysisSettings) -> tuple[MetaAnalysisSettings, ...]:
        return tuple(dict.fromkeys((settings, settings.changed(repeats=1), settings.changed(folds=1))))

    def budget(self, settings: MetaAnalysisSettings, context: AIPWContext) -> dict[str, int]:
        return budget(settings.folds, settings.fold_draws)

    def most_rounds(self, settings: MetaAnalysisSettings) -> int:
        return STEPS + 1

    def expected(self, settings: MetaAnalysisSettings, context: AIPWContext) -> Course:
        pooling = SiteRegressions(context.sites, 1 + context.covariates)
        folds, draws = settings.folds, settings.fold_draws
        return expected(
            pooling,
            folds,
            draws,
            system=pooling.width,
            systems=pooling.sites,
            linear=context.family == "continuous",
        )

    def conditional_effects(
        self, settings: MetaAnalysisSettings, context: AIPWContext, draws: Draws, rows: Rows, people: Rows
    ) -> np.ndarray:
        return conditional(outcome_family(context), draws.at(int(people.site)), people)

    def outcomes_elsewhere(
        self,
        settings: MetaAnalysisSettings,
        context: AIPWContext,
        draws: Draws,
        people: Rows,
        distances: np.ndarray,
        seed: int,
    ) -> np.ndarray:
        return elsewhere(outcome_family(context), draws, people, 0)

    def elsewhere_words(self, settings: MetaAnalysisSettings) -> str:
        return REGRESSIONS_ELSEWHERE

    def individual_effects(
        self,
        settings: MetaAnalysisSettings,
        context: AIPWContext,
        draws: Draws,
        rows: Rows,
        people: Rows | None,
        seed: int,
    ) -> np.ndarray:
        asked = rows if people is None else people
        return individual(outcome_family(context), draws.at(int(asked.site)), asked, seed)


METHOD = MetaAnalysisMethod()
