"""A study looked at before it is believed: balance, overlap, agreement of the sites, simpler estimates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import pandas as pd

from unpooled.coordinator.agreement import reach_agreement
from unpooled.coordinator.rounds import run
from unpooled.data import Table
from unpooled.diagnostics import checks
from unpooled.diagnostics.balance import balance
from unpooled.diagnostics.comparators import comparators
from unpooled.diagnostics.heterogeneity import leave_one_out, pooled, site_estimates
from unpooled.diagnostics.propensities import extreme, histogram, outside_support, weights
from unpooled.diagnostics.table_one import table_one
from unpooled.diagnostics.withholding import hidden_sites
from unpooled.effects.summary import combine, interval
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import FitError, StudyError
from unpooled.methods import method as methods
from unpooled.methods.diagnostics import study_diagnostics
from unpooled.methods.diagnostics.regressors import regressors
from unpooled.protocol.messages import Adopt, Tree
from unpooled.site.limits import NONE, Limits
from unpooled.study import Schema, Study


@dataclass(frozen=True)
class Look:
    """Frames to read and to draw; of sites with few people nothing is shown by itself (`hidden` says why)."""

    table_one: pd.DataFrame
    overlap: pd.DataFrame
    weights: pd.DataFrame
    balance: pd.DataFrame
    sites: pd.DataFrame
    leave_one_out: pd.DataFrame
    comparators: pd.DataFrame
    heterogeneity: dict[str, Any]
    outside_support: float
    extreme: float
    hidden: dict[str, str] = field(default_factory=dict)
    main: tuple[float, float] | None = None
    """The interval of the study's own average effect, where it was fitted."""

    @property
    def checks(self) -> pd.DataFrame:
        """name, passed, found, threshold, words."""
        found = checks.overlap_checks(self.outside_support, self.weights)
        found += [checks.balance_check(self.balance), *checks.agreement_check(self.heterogeneity)]
        if self.main is not None:
            found.append(checks.comparison_check(self.main, self.comparators))
        return pd.DataFrame([asdict(one) for one in found])


class Looked(Protocol):
    """What of a fitted study is looked at: `unpooled.estimators.Result` has it."""

    @property
    def sites(self) -> tuple[str, ...]: ...
    @property
    def counts(self) -> tuple[int, ...]: ...
    @property
    def schema(self) -> Tree: ...
    @property
    def scaling(self) -> Tree: ...
    @property
    def site_effects(self) -> Any: ...
    @property
    def looked(self) -> Tree: ...


def look_at(result: Looked) -> Look:
    """At a study that was fitted with ``look=True``."""
    if result.looked is None:
        raise StudyError(
            "the study must have been looked at while it was fitted",
            found="look = false",
            remedy="fit a study with look=True, or unpooled.look(study, sites)",
        )
    counts = dict(zip(result.sites, result.counts, strict=True))
    main = interval(combine(result.site_effects, result.counts), 0.05)
    return _look(
        result.looked, result.scaling, Schema(**result.schema), counts, (float(main[0]), float(main[1]))
    )


def look(study: Study, sites: Mapping[str, Table] | None = None, *, limits: Limits = NONE) -> Look:
    """At a study before it is fitted; the rows stay where they are."""
    engine = InProcess(open_sites(study, sites, limits))
    agreement, looked = run(_rounds(study), engine)
    counts = {site: described.rows for site, described in agreement.descriptions.items()}
    return _look(looked, agreement.scaling, agreement.schema, counts, None)


def _rounds(study: Study) -> Any:
    """The agreement, the adoption of the simplest method there is, and what is looked at."""
    agreement = yield from reach_agreement(study)
    schema, sites = agreement.schema.model_dump(mode="json"), tuple(agreement.descriptions)
    method = methods.find("aipw")
    settings = method.Settings(estimator="difference")
    context = method.context(settings, agreement.scaling, study.seed)
    chosen = settings.model_dump(mode="json")
    yield Adopt(schema, agreement.scaling, "aipw", chosen, context, study.seed, sites, look=True)
    return agreement, (yield from study_diagnostics.look(agreement.scaling))


def _look(
    looked: Tree, scaling: Tree, schema: Schema, counts: dict[str, int], main: tuple[float, float] | None
) -> Look:
    if "why_not" in looked:
        raise FitError(
            "both arms must have enough people to be compared",
            found=looked["why_not"],
            remedy="look = false, or leave out the sites with few people",
        )
    scale = float(scaling["outcome_sd"])
    hidden = hidden_sites(counts, looked)
    found = regressors(scaling, (*schema.features, *schema.incomplete_features))
    widths = [len(column.features) for column in (*schema.covariates, *schema.incomplete)]
    shown = (counts, hidden)
    sites = site_estimates(looked, scale, *shown)
    spread = pooled(sites, scale)
    return Look(
        table_one(looked, found, *shown, widths),
        histogram(looked, *shown),
        weights(looked, *shown),
        balance(looked, found, widths),
        sites,
        leave_one_out(looked, scale, *shown),
        comparators(looked, scale, spread),
        spread,
        outside_support(looked),
        extreme(looked),
        hidden,
        main,
    )
