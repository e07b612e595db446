"""The sums of AIPW's nuisance regressions, kept separately for each site."""

from __future__ import annotations

from typing import ClassVar

from unpooled.methods.aipw.stages import (
    BY_LIKELIHOOD,
    REGRESSIONS,
    outcome_likelihood_sums,
    outcome_sums,
    packed,
    treatment_sums,
)
from unpooled.models.outcome_family import Family
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds, Stage


class SiteTreatment(Stage):
    """Gradient and Hessian of the site's own logistic regression of the treatment, leaving out one fold."""

    in_batches: ClassVar[bool] = True
    reveals: ClassVar[str] = (
        "at this site: slope and curvature of the treatment's log likelihood, without each fold"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        return Statistics(per_site=packed(treatment_sums(parameters, rows)))

    def bounds(self) -> Bounds:
        return REGRESSIONS


class SiteOutcome(Stage):
    """Normal equations of the site's own linear outcome regressions by arm, leaving out one fold."""

    in_batches: ClassVar[bool] = True
    reveals: ClassVar[str] = (
        "at this site: products of the covariates and the outcome by arm, without each fold and of everybody"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        return Statistics(per_site=packed(outcome_sums(parameters, rows)))

    def bounds(self) -> Bounds:
        return REGRESSIONS


class SiteOutcomeLikelihood(Stage):
    """Gradients and Hessians of the site's own regressions of a 0/1 outcome or a count by arm."""

    family: Family
    in_batches: ClassVar[bool] = True
    reveals: ClassVar[str] = (
        "at this site: by arm, slope and curvature of the outcome's log likelihood and squared errors of "
        "counts, without each fold and of everybody"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        return Statistics(per_site=packed(outcome_likelihood_sums(parameters, rows, self.family)))

    def bounds(self) -> Bounds:
        return BY_LIKELIHOOD
