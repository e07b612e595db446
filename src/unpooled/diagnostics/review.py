"""Review of a study by a custodian: what it asks of the site, what would leave it, what limits refuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from unpooled.coordinator.agreement import Agreement
from unpooled.coordinator.plan import most_numbers, smallest_arms
from unpooled.data import describe
from unpooled.data.model_matrix import encode
from unpooled.diagnostics.preview import first_questions, planned, refused
from unpooled.diagnostics.seen_by_site import seen_by_site
from unpooled.disclosure.limits import Limits
from unpooled.methods import method as methods
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.protocol.messages import Ask, Refusal, Together, Vjp, question_kinds
from unpooled.protocol.records import IncompleteColumn, Scaling, SiteSummaries
from unpooled.protocol.stage import Stage
from unpooled.site.allowance import budget_of
from unpooled.site.site import Site
from unpooled.study import ColumnSchema, Description, Schema, Study, agree, with_indicators
from unpooled.study.family import resolve
from unpooled.study.subgroups import Entry, levels_named, listed

MANY = 50_000
"""Rows of a hypothetical other site, large enough that the method includes all its stages."""


@dataclass(frozen=True)
class Review:
    """What the custodian bases the decision on; computed at the site without sending anything."""

    study: Study
    site: str
    rows: int
    limits: Limits
    most_rounds: int
    leaving: dict[str, str]
    """What each kind of message reveals."""
    seen_by_site: dict[str, dict[str, int]]
    """By stage: which numbers the coordinator sees of this site alone, even if
    sums are masked, and how many."""
    refusals: list[str]
    notes: tuple[str, ...]
    """What the coordinator would have to change in the study because of this site's limits."""
    smallest_arms: dict[str, int]
    """By plan, in words: from how many people in the smaller arm on this site answers."""
    numbers: int
    """About how many numbers would leave the site at most."""
    values: int
    """The number of values in the columns of the study: what these numbers are about."""


def review(study: Study, site: Site) -> Review:
    """Simulate the coordinator for this site alone, up to the first stage."""
    method = methods.find(study.method.name)
    settings = methods.settings_of(method, study.method.settings)
    agreement = _agreement(study, site)
    scaling = agreement.scaling
    context = method.context(settings, scaling, study.seed)
    plan = planned(study, agreement)
    stages = diagnostic_rounds.of_study(study, method.stages(settings, context), scaling)
    return Review(
        study,
        site.name,
        len(site.frame),
        site.limits,
        budget_of(study, 0).rounds,
        _leaving(study, stages),
        seen_by_site(plan.study, scaling, len(listed(study.subgroups, agreement.schema))),
        refused(site, first_questions(plan, agreement), site.limits),
        plan.notes,
        smallest_arms(study, scaling, site.limits),
        most_numbers(plan.study, scaling),
        len(site.frame) * (2 + len(site.columns.covariates) + len(site.columns.incomplete)),
    )


def _leaving(study: Study, stages: Mapping[str, Stage]) -> dict[str, str]:
    others = [kind for kind in question_kinds().values() if kind not in (Ask, Vjp, Together)]
    found = {kind.words: kind.reply.reveals for kind in others if kind.concerns(study)}
    found |= {f"{name}: {Ask.words}": stage.reveals for name, stage in stages.items()}
    return {**found, f"any stage: {Vjp.words}": Vjp.reply.reveals, "refusal": Refusal.reveals}


def _agreement(study: Study, site: Site) -> Agreement:
    """What the sites might agree on, as far as this site can tell."""
    found = describe(site.frame, site.columns)
    schema = _schema(site, found, study.subgroups)
    return Agreement(
        schema, _scaling(schema, site, study, found), {site.name: found}, {site.name: site.limits}
    )


def _schema(site: Site, found: Description, subgroups: Mapping[str, Entry]) -> Schema:
    """The schema of this site alone; a column without values here may have some at another site."""
    seen = {column.name: column for column in found.incomplete}
    incomplete = tuple(
        seen.get(name, ColumnSchema(name=name, kind="numeric")) for name in site.columns.incomplete
    )
    columns = tuple(_with_levels(column, subgroups) for column in found.columns)
    own = found.model_copy(update={"columns": columns, "incomplete": incomplete})
    schema = agree({site.name: own}, site.columns)
    if site.columns.missing != "indicator":
        return schema
    # There may be gaps in every column elsewhere, so that all indicators may be needed.
    return with_indicators(schema, {one.name: (0, 0.0) for one in schema.incomplete}, len(site.frame))


def _with_levels(column: ColumnSchema, subgroups: Mapping[str, Entry]) -> ColumnSchema:
    """A text column with the levels that the study's rules name, which another site may have."""
    if column.kind != "categorical":
        return column
    levels = tuple(sorted({*column.levels, *levels_named(subgroups, column.name)}))
    return column.model_copy(update={"levels": levels})


def _scaling(schema: Schema, site: Site, study: Study, found: Description) -> Scaling:
    """The scaling if there were one other, large site with people like those of this site."""
    arrays = encode(site.frame, site.columns, schema, site=site.name)
    assert arrays.outcome is not None
    features, incomplete = len(schema.features), len(schema.incomplete_features)
    binary = np.array(schema.binary, dtype=bool)
    mean, sd = _moments(arrays.covariates)
    outcome_mean, outcome_sd = _moments(arrays.outcome[:, None])
    incomplete_mean, incomplete_sd = _moments(arrays.incomplete)
    summaries = SiteSummaries((site.name, "another site"), (len(site.frame), MANY), np.zeros((2, incomplete)))
    return Scaling(
        mean=mean,
        sd=sd,
        outcome_mean=float(outcome_mean[0]),
        outcome_sd=float(outcome_sd[0]),
        correlation=np.eye(features),
        binary_rate=np.where(binary, 0.5, np.nan),
        family=resolve(
            study.columns.family, [found.outcome], float(outcome_mean[0]), float(outcome_sd[0]) ** 2
        ),
        incomplete_mean=incomplete_mean,
        incomplete_sd=incomplete_sd,
        incomplete_columns=tuple(
            IncompleteColumn(one.name, one.kind, len(one.features)) for one in schema.incomplete
        ),
        sites=2,
        people=len(site.frame) + MANY,
        largest_site=MANY,
        site_distances=np.zeros((2, 2)),
        by_site=summaries,
    )


def _moments(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of the values that are present; 0 and 1 for a column without values or variation."""
    seen = ~np.isnan(columns)
    count = np.maximum(seen.sum(axis=0), 1)
    mean = np.where(seen, columns, 0.0).sum(axis=0) / count
    sd = np.sqrt((np.where(seen, columns - mean, 0.0) ** 2).sum(axis=0) / count)
    return mean, np.where(sd > 0.0, sd, 1.0)
