"""The meta-analysis's face: what the coordinator and the sites call."""

from __future__ import annotations

import numpy as np

from unpooled.methods.aipw.effects import conditional, individual
from unpooled.methods.aipw.newton import STEPS
from unpooled.methods.aipw.scores import Scores
from unpooled.methods.meta_analysis.apart import Apart
from unpooled.methods.meta_analysis.fit import fit
from unpooled.methods.meta_analysis.regressions import SiteOutcome, SiteTreatment
from unpooled.methods.meta_analysis.settings import Settings
from unpooled.methods.method import Fitted
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.addressing import at_site
from unpooled.protocol.messages import Tree
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage


class MetaAnalysis:
    """See `unpooled.methods.method.Method`. Sites' own doubly robust estimates, pooled by inverse variance.

    A site's effect is its estimate shrunken to the pooled one (empirical Bayes: τ² is taken as known), and
    `ate` averages these over the sites' people. With fixed effects that is the pooled estimate and its error
    exactly. With random effects it is the average over these sites' people, while the pooled estimate, the
    mean over sites there could be, stands in the diagnostics under `overall`.
    """

    Settings = Settings
    takes_incomplete = False

    def context(self, settings: Settings, scaling: Tree, seed: int) -> Tree:
        return {
            "covariates": len(scaling["mean"]),
            "sites": len(scaling["counts"]),
            "outcome_sd": float(scaling["outcome_sd"]),
        }

    def stages(self, settings: Settings, context: Tree) -> dict[str, Stage]:
        return {"outcome": SiteOutcome(), "treatment": SiteTreatment(), "scores": Scores(settings.trim)}

    def fit(self, settings: Settings, context: Tree, seed: int) -> Procedure[Fitted]:
        sharing = Apart(int(context["sites"]), 1 + int(context["covariates"]))
        found = yield from fit(settings, sharing, seed, float(context["outcome_sd"]))
        return Fitted(found.draws, found.effects, found.diagnostics)

    def folds(self, settings: Settings) -> int:
        return settings.folds if settings.folds > 1 else 0

    def features(self, settings: Settings, context: Tree) -> int:
        return 1 + int(context["covariates"])

    def most_rounds(self, settings: Settings) -> int:
        return STEPS + 1

    def conditional_effects(
        self, settings: Settings, context: Tree, draws: Tree, rows: Rows, people: Rows
    ) -> np.ndarray:
        return conditional(at_site(draws, int(people.site)), people)

    def individual_effects(
        self, settings: Settings, context: Tree, draws: Tree, rows: Rows, people: Rows | None
    ) -> np.ndarray:
        asked = rows if people is None else people
        return individual(at_site(draws, int(asked.site)), asked)


METHOD = MetaAnalysis()
