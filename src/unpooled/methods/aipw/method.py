"""AIPW's face: what the coordinator and the sites call."""

from __future__ import annotations

import numpy as np

from unpooled.methods.aipw.effects import conditional, individual
from unpooled.methods.aipw.fit import fit
from unpooled.methods.aipw.newton import STEPS
from unpooled.methods.aipw.normal_equations import Shared
from unpooled.methods.aipw.regressions import Outcome, Treatment
from unpooled.methods.aipw.scores import Scores, WeightedOutcomes
from unpooled.methods.aipw.settings import Settings
from unpooled.methods.method import Fitted
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.addressing import at_site
from unpooled.protocol.messages import Tree
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage


class Aipw:
    """See `unpooled.methods.method.Method`. Average effects without a model of the posterior.

    Outcome regressions are linear in the mean for every kind of outcome, 0/1 and counts included: where the
    propensities are right the estimate is consistent all the same. They are also all that is known of single
    people, whichever the estimator.
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
        offsets = _sharing(settings, context).offsets
        stages: dict[str, Stage] = {"outcome": Outcome(offsets)}
        if settings.estimator != "difference":
            stages["treatment"] = Treatment(offsets)
        if settings.estimator == "aipw":
            return {**stages, "scores": Scores(settings.trim)}
        return {**stages, "weighted_outcomes": WeightedOutcomes(settings.trim)}

    def fit(self, settings: Settings, context: Tree, seed: int) -> Procedure[Fitted]:
        found = yield from fit(settings, _sharing(settings, context), seed, float(context["outcome_sd"]))
        return Fitted(found.draws, found.effects, found.diagnostics)

    def folds(self, settings: Settings) -> int:
        return settings.folds if settings.folds > 1 and settings.estimator != "difference" else 0

    def features(self, settings: Settings, context: Tree) -> int:
        return 1 + int(context["covariates"])

    def most_rounds(self, settings: Settings) -> int:
        return 1 + (1 if settings.estimator == "difference" else STEPS)

    def conditional_effects(
        self, settings: Settings, context: Tree, draws: Tree, rows: Rows, people: Rows
    ) -> np.ndarray:
        return conditional(at_site(draws, int(people.site)), people)

    def individual_effects(
        self, settings: Settings, context: Tree, draws: Tree, rows: Rows, people: Rows | None
    ) -> np.ndarray:
        asked = rows if people is None else people
        return individual(at_site(draws, int(asked.site)), asked)


def _sharing(settings: Settings, context: Tree) -> Shared:
    sites = int(context["sites"])
    offsets = settings.site_terms == "offsets" and sites > 1
    return Shared(sites, 1 + int(context["covariates"]), offsets)


METHOD = Aipw()
