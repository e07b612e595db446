"""The diagnostics of a study as data frames: balance, overlap, heterogeneity and comparator estimates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

import numpy as np
import pandas as pd

from unpooled.coordinator.agreement import Agreement, reach_agreement
from unpooled.coordinator.result import StudyResult
from unpooled.coordinator.rounds import run
from unpooled.coordinator.run import adoption
from unpooled.data import Table
from unpooled.diagnostics import checks
from unpooled.diagnostics.balance import balance, table_one
from unpooled.diagnostics.duplicates import leave_out_here
from unpooled.diagnostics.heterogeneity import (
    SiteHeterogeneity,
    comparators,
    leave_one_out,
    pooled,
    site_estimates,
)
from unpooled.diagnostics.overlap import extreme, histogram, outside_support, weights
from unpooled.disclosure.limits import NONE, Limits
from unpooled.disclosure.withheld import withheld
from unpooled.effects.summary import interval
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import FitError, StudyError
from unpooled.methods import method as methods
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.methods.diagnostics.balance import regressors
from unpooled.methods.diagnostics.rounds import DiagnosticStatistics, Unavailable
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.records import Check, Scaling
from unpooled.study import Schema, Study


@dataclass(frozen=True)
class StudyDiagnostics:
    """Data frames to read and plot. Small sites are not shown individually; `hidden` gives the reasons."""

    table_one: pd.DataFrame
    overlap: pd.DataFrame
    weights: pd.DataFrame
    balance: pd.DataFrame
    sites: pd.DataFrame
    leave_one_out: pd.DataFrame
    comparators: pd.DataFrame
    heterogeneity: SiteHeterogeneity
    outside_support: float
    extreme: float
    hidden: dict[str, str] = field(default_factory=dict)
    main: tuple[float, float] | None = None
    """The interval of the study's own average effect, if it was fitted by another method than AIPW."""

    @property
    def checks(self) -> pd.DataFrame:
        """name, passed, found, threshold, words."""
        found = checks.overlap_checks(self.outside_support, self.extreme, self.weights)
        found += [checks.balance_check(self.balance), *checks.agreement_check(self.heterogeneity)]
        if self.main is not None:
            found.append(checks.comparison_check(self.main, self.comparators))
        return pd.DataFrame([asdict(one) for one in found])


def hidden_sites(result: StudyResult) -> dict[str, str]:
    """The sites that are not shown individually, with reasons: those that are too small, or all."""
    if not result.study.by_site:
        return dict.fromkeys(result.sites, "the study leaves out effects by site")
    counts = dict(zip(result.sites, result.counts, strict=True))
    unknown = result.sites_without_effects
    return {**unknown, **_hidden(counts, result.diagnostic_statistics, result.scaling.known.one_arm)}


def _hidden(
    counts: Mapping[str, int],
    statistics: DiagnosticStatistics | Unavailable | None,
    one_arm: Mapping[str, str],
) -> dict[str, str]:
    """Hidden sites by number of people and, if known, by number in each arm."""
    if not isinstance(statistics, DiagnosticStatistics):
        return withheld(counts)
    arms, total = (np.asarray(part["arms"]) for part in (statistics.per_site, statistics.summed))
    return withheld(counts, arms, total, one_arm=one_arm)


def of_result(result: StudyResult) -> StudyDiagnostics:
    """The diagnostics of a study that was fitted with ``diagnostics=True``."""
    if result.diagnostic_statistics is None:
        raise StudyError(
            "the study must have been fitted with diagnostics",
            found="diagnostics = false",
            remedy="fit a study with diagnostics=True, or call unpooled.diagnose(study, sites)",
        )
    counts = dict(zip(result.sites, result.counts, strict=True))
    # AIPW, with which the interval is compared, estimates the population's effect.
    lower, upper = interval(result.average_outcomes.average_effects("population")[:, 0], 0.05)
    main = None if _is_aipw(result.study) else (float(lower), float(upper))
    return _diagnostics(result.diagnostic_statistics, result.scaling, result.schema, counts, main)


def _is_aipw(study: Study) -> bool:
    """Whether the study's own estimate is AIPW or pools AIPW of sites, so that agreement says nothing."""
    name, chosen = study.method.name, study.method.settings.get("estimator", "aipw")
    return name == "meta_analysis" or (name == "aipw" and chosen == "aipw")


def checks_of(result: StudyResult) -> pd.DataFrame:
    """All checks of a result, those of the fit first; those of the diagnostics if they were computed."""
    fitted = [asdict(one) for one in result.fit_checks]
    if isinstance(result.diagnostic_statistics, DiagnosticStatistics):
        fitted += of_result(result).checks.to_dict("records")
    return pd.DataFrame(fitted, columns=[one.name for one in fields(Check)])


def failed(checks: pd.DataFrame) -> list[str]:
    """The names of the checks that failed."""
    return [one["name"] for one in checks.to_dict("records") if not one["passed"]]


def diagnose(
    study: Study, sites: Mapping[str, Table] | None = None, *, limits: Limits = NONE
) -> StudyDiagnostics:
    """Compute the diagnostics of a study before it is fitted.

    Parameters
    ----------
    study : Study
        The study. Its method is not fitted.
    sites : dict of str to table, optional
        A table for each site, as in `fit`. By default, the tables that the study names. They must be in this
        process.
    limits : Limits, optional
        Disclosure limits of the sites, off by default.

    Returns
    -------
    StudyDiagnostics
        Balance, overlap, heterogeneity between sites and simpler estimates, as data frames. ``checks`` has
        the verdicts.

    Raises
    ------
    FitError
        If an arm has too few people to be compared.

    Examples
    --------
    >>> found = diagnose(study, sites)  # doctest: +SKIP
    >>> found.checks[["name", "passed"]]  # doctest: +SKIP
    """
    simplest = methods.with_settings(study, "aipw", {"site_terms": "none", "folds": 1})
    simplest = simplest.model_copy(update={"diagnostics": True})
    engine = InProcess(open_sites(study, sites, limits))
    leave_out_here(study, engine)
    agreement, found = run(_procedure(simplest), engine)
    counts = {site: described.rows for site, described in agreement.descriptions.items()}
    return _diagnostics(found, agreement.scaling, agreement.schema, counts, None)


def _procedure(study: Study) -> Procedure[tuple[Agreement, DiagnosticStatistics | Unavailable]]:
    """Agree, adopt, and run only the diagnostics, without fitting a method."""
    agreement = yield from reach_agreement(study)
    yield adoption(study, agreement.schema, agreement.scaling)
    return agreement, (yield from diagnostic_rounds.diagnose(agreement.scaling))


def _diagnostics(
    statistics: DiagnosticStatistics | Unavailable,
    scaling: Scaling,
    schema: Schema,
    counts: dict[str, int],
    main: tuple[float, float] | None,
) -> StudyDiagnostics:
    if isinstance(statistics, Unavailable):
        raise FitError(
            "both arms must have enough people for diagnostics",
            found=statistics.reason,
            remedy="set diagnostics = false, or exclude sites with few people",
        )
    scale = scaling.outcome_sd
    one_arm = scaling.known.one_arm
    hidden = _hidden(counts, statistics, one_arm)
    found = regressors(scaling, (*schema.features, *schema.incomplete_features))
    widths = [len(column.features) for column in (*schema.covariates, *schema.incomplete)]
    shown = (counts, hidden)
    # At a site with one arm, an estimate would be that of the other sites' regressions.
    comparable = (counts, {**hidden, **one_arm})
    sites = site_estimates(statistics, scale, *comparable)
    spread = pooled(sites, scale)
    return StudyDiagnostics(
        table_one(statistics, found, *shown, widths),
        histogram(statistics, *shown),
        weights(statistics, *shown),
        balance(statistics, found, widths),
        sites,
        leave_one_out(statistics, scale, *comparable),
        comparators(statistics, scale, spread),
        spread,
        outside_support(statistics),
        extreme(statistics),
        hidden,
        main,
    )
