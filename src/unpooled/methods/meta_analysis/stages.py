"""The sums of AIPW's regressions, of each site by itself."""

from __future__ import annotations

from typing import ClassVar

from unpooled.methods.aipw.stages import outcome_sums, packed, treatment_sums
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage


class SiteTreatment(Stage):
    """A Newton step of a site's own logistic regression of the treatment, without the people of one fold."""

    reveals: ClassVar[str] = (
        "at this site: slope and curvature of the treatment's log likelihood, without each fold"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        return Statistics(per_site=packed(treatment_sums(parameters, rows)))


class SiteOutcome(Stage):
    """A site's own linear regressions of the outcome by arm, without the people of one fold."""

    reveals: ClassVar[str] = (
        "at this site: products of the covariates and the outcome by arm, without each fold and of everybody"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        return Statistics(per_site=packed(outcome_sums(parameters, rows)))
