"""Review of a study by a custodian: what it asks of the site, what would leave it, what limits refuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from unpooled.coordinator.run import ROUNDS_BEFORE_FITTING
from unpooled.data import describe
from unpooled.diagnostics.preview import first_questions, refused
from unpooled.disclosure.limits import Limits
from unpooled.methods import method as methods
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.protocol.messages import Ask, Refusal, Together, Vjp, question_kinds
from unpooled.protocol.records import IncompleteColumn, Scaling
from unpooled.protocol.stage import Stage
from unpooled.site.site import Site
from unpooled.study import ColumnSchema, Schema, Study, agree

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
    refusals: list[str]


def review(study: Study, site: Site) -> Review:
    """Simulate the coordinator for this site alone, up to the first stage."""
    method = methods.find(study.method.name)
    settings = methods.settings_of(method, study.method.settings)
    schema = _schema(site)
    scaling = _scaling(schema, site, study)
    context = method.context(settings, scaling, study.seed)
    questions = first_questions(methods.with_explicit_settings(study), schema, scaling)
    stages = diagnostic_rounds.joined(method.stages(settings, context), scaling, study.diagnostics)
    return Review(
        study,
        site.name,
        len(site.frame),
        site.limits,
        ROUNDS_BEFORE_FITTING
        + max(method.most_rounds(settings), diagnostic_rounds.MOST_ROUNDS if study.diagnostics else 0),
        _leaving(study, stages),
        refused(site, questions, site.limits),
    )


def _leaving(study: Study, stages: Mapping[str, Stage]) -> dict[str, str]:
    others = [kind for kind in question_kinds().values() if kind not in (Ask, Vjp, Together)]
    found = {kind.words: kind.reply.reveals for kind in others if kind.concerns(study)}
    found |= {f"{name}: {Ask.words}": stage.reveals for name, stage in stages.items()}
    return {**found, f"any stage: {Vjp.words}": Vjp.reply.reveals, "refusal": Refusal.reveals}


def _schema(site: Site) -> Schema:
    """The schema of this site alone; a column without values here may have some at another site."""
    found = describe(site.frame, site.columns)
    seen = {column.name: column for column in found.incomplete}
    incomplete = tuple(
        seen.get(name, ColumnSchema(name=name, kind="numeric")) for name in site.columns.incomplete
    )
    return agree({site.name: found.model_copy(update={"incomplete": incomplete})}, site.columns)


def _scaling(schema: Schema, site: Site, study: Study) -> Scaling:
    """Placeholder scaling of the right shape, as if there were one other, large site."""
    features, incomplete = len(schema.features), len(schema.incomplete_features)
    binary = np.array(schema.binary, dtype=bool)
    return Scaling(
        mean=np.zeros(features),
        sd=np.ones(features),
        outcome_mean=0.0,
        outcome_sd=1.0,
        correlation=np.eye(features),
        binary_rate=np.where(binary, 0.5, np.nan),
        family=study.columns.family,
        incomplete_mean=np.zeros(incomplete),
        incomplete_sd=np.ones(incomplete),
        incomplete_columns=tuple(
            IncompleteColumn(one.name, one.kind, len(one.features)) for one in schema.incomplete
        ),
        sites=2,
        people=len(site.frame) + MANY,
        largest_site=MANY,
        site_distances=np.zeros((2, 2)),
    )
