"""Review of a study by a custodian: what it asks of the site, what would leave it, what limits refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from unpooled.data import describe, encode
from unpooled.diagnostics.preview import expected_refusals
from unpooled.disclosure.limits import Limits
from unpooled.methods import method as methods
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.protocol.messages import Ask, Refusal, Together, Vjp, question_kinds
from unpooled.protocol.records import IncompleteColumn, Scaling, SiteSummaries
from unpooled.protocol.stage import Stage
from unpooled.site.allowance import budget_of
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
    notes: tuple[str, ...] = ()
    """How this site's limits would make the study coarser."""


def review(study: Study, site: Site) -> Review:
    """Simulate the coordinator for this site alone, up to the first stage."""
    method = methods.find(study.method.name)
    settings = methods.settings_of(method, study.method.settings)
    schema = _schema(site)
    scaling = _scaling(schema, site, study)
    context = method.context(settings, scaling, study.seed)
    stages = diagnostic_rounds.joined(method.stages(settings, context), scaling, study.diagnostics)
    refusals, notes = expected_refusals(study, site, schema, scaling, site.limits)
    return Review(
        study,
        site.name,
        len(site.frame),
        site.limits,
        budget_of(study, 0).rounds,
        _leaving(study, stages),
        refusals,
        notes,
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
    """The site's own scaling, as if there were one other, large site with people like its own."""
    features, incomplete = len(schema.features), len(schema.incomplete_features)
    binary = np.array(schema.binary, dtype=bool)
    arrays = encode(site.frame, site.columns, schema, site=site.name)
    assert arrays.outcome is not None
    return Scaling(
        mean=arrays.covariates.mean(axis=0),
        sd=_spread(arrays.covariates.std(axis=0)),
        outcome_mean=float(arrays.outcome.mean()),
        outcome_sd=float(_spread(arrays.outcome.std())),
        correlation=np.eye(features),
        binary_rate=np.where(binary, 0.5, np.nan),
        family=study.columns.family,
        incomplete_mean=_seen(np.nanmean, arrays.incomplete, 0.0),
        incomplete_sd=_spread(_seen(np.nanstd, arrays.incomplete, 1.0)),
        incomplete_columns=tuple(
            IncompleteColumn(one.name, one.kind, len(one.features)) for one in schema.incomplete
        ),
        sites=2,
        people=len(site.frame) + MANY,
        largest_site=MANY,
        site_distances=np.zeros((2, 2)),
        by_site=SiteSummaries(
            (site.name, f"not {site.name}"), (len(site.frame), MANY), np.ones((2, incomplete))
        ),
    )


def _spread(sd: np.ndarray) -> np.ndarray:
    return np.where(sd > 0.0, sd, 1.0)


def _seen(statistic: Callable[[np.ndarray], float], columns: np.ndarray, otherwise: float) -> np.ndarray:
    """A statistic of the observed values of each column; a column may have none at this site."""
    some = ~np.isnan(columns)
    return np.array(
        [
            statistic(col[seen]) if seen.any() else otherwise
            for col, seen in zip(columns.T, some.T, strict=True)
        ]
    )
