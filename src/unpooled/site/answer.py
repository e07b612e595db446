"""The complete disclosure surface of a site: one match over all questions it may be asked."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TypeVar

import jax
import numpy as np

from unpooled.data import encode, frames
from unpooled.data.stored_columns import column, level_counts
from unpooled.disclosure.bounds import check_finite, check_parameters
from unpooled.disclosure.groups import value_cells, value_counts
from unpooled.disclosure.limits import Limits, check_cells, check_groups, check_rows, smallest_pattern
from unpooled.disclosure.protection import capped_weights
from unpooled.errors import DataError, MessageError, UnpooledError
from unpooled.maths.missing_patterns import patterns_of, suppressed
from unpooled.methods import method as methods
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.protocol.batch import one_by_one
from unpooled.protocol.duplicate_messages import (
    BlindKeys,
    CountKeys,
    FinishKeys,
    HashKeys,
    LeaveOut,
    RaiseKeys,
)
from unpooled.protocol.fixed_point import Scale
from unpooled.protocol.key_messages import Introduce, Meet, Met
from unpooled.protocol.messages import (
    Adopt,
    Adopted,
    Ask,
    Gradient,
    Message,
    Question,
    Refusal,
    Replies,
    Reply,
    Statistics,
    Together,
    Vjp,
)
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage
from unpooled.protocol.table_messages import (
    Centre,
    CompareLeftOut,
    Describe,
    Described,
    MissingPatterns,
    Observed,
    Patterns,
    Summarise,
    Summary,
    SumObserved,
)
from unpooled.site.duplicates import answer_about_people
from unpooled.site.left_out import left_out_for_gaps
from unpooled.site.profile import Profile
from unpooled.site.session import Party
from unpooled.site.site import Adoption, Site, adopt, description, profile_of, table_digest
from unpooled.site.spool import Spool, batches
from unpooled.site.standard_units import check_family, check_scaling, require_shapes
from unpooled.study import ColumnSchema, Schema

R = TypeVar("R", bound=Message)
SEPARATING = 5
"""Smallest arm size at which a covariate that separates the arms exactly is taken to be the treatment."""


MOST_SHAPE = 5.0
"""Skewness and kurtosis are clipped to this size."""
SMALLEST = 1e-70
"""Standard deviations whose fourth powers are still far from zero."""


def answer(site: Site, question: Message) -> Reply:
    """The site's reply or its refusal with reasons; never a row."""
    try:
        reply = _answer(site, question)
        return in_single_precision(reply) if site.limits.cell else reply
    except UnpooledError as error:
        return Refusal(type(error).__name__, error.expected, error.found, error.remedy)


def hide(site: Site, reply: Reply, question: Message, number: int, scale: Scale | None) -> Reply:
    """The reply as it leaves: if a scale is given, with masks on what is needed only as a sum."""
    if scale is None or not isinstance(question, Question) or isinstance(reply, Refusal):
        return reply
    try:
        if site.session is None:
            raise MessageError(
                "sites must exchange keys before they mask numbers",
                found="no keys for this run",
                remedy="start the study again",
            )
        if site.adopted is None or not question.of_stages:
            return site.session.hide(reply, question, number, scale)
        return site.session.hide(reply, question, number, scale, site.adopted.count, site.adopted.differs)
    except UnpooledError as error:
        return Refusal(type(error).__name__, error.expected, error.found, error.remedy)


def _answer(site: Site, question: Message) -> Reply:
    match question:
        case Introduce(sites):
            return _party(site).introduce(sites)
        case Meet(introductions):
            party, table = _party(site), table_digest(site)
            site.session = party.meet(introductions)
            return Met(site.session.tags(table), party.mark(table))
        case CountKeys() | BlindKeys() | RaiseKeys() | FinishKeys() | HashKeys() | LeaveOut():
            return answer_about_people(site, question)
        case Describe():
            described = description(site)
            check_rows(site.limits, described.rows)
            check_cells(site.limits, {f"arm {level}": count for level, count in described.arms.items()})
            check_cells(site.limits, _rarest(site, (*described.columns, *described.incomplete)))
            return Described(described, site.limits)
        case Summarise(schema, centre, by_site):
            table = _profile(site, schema)
            check_groups(site.limits, 1 + len(schema.features), (table.people,), folds=0)
            return _summarise(table, centre, site.limits, by_site=by_site)
        case MissingPatterns(schema, centre):
            return _missing_patterns(site, schema, centre)
        case SumObserved(schema):
            table = _profile(site, schema)
            own = slice(len(schema.features) + 1, None)
            return Observed(table.people, {"seen": table.seen[own], "total": (table.seen * table.mean)[own]})
        case CompareLeftOut(schema, centre):
            table = _profile(site, schema)
            _require_centre(centre, np.full(_complete(site, schema) + 2, table.largest.max()))
            return left_out_for_gaps(site, schema, centre)
        case Adopt():
            table = _profile(site, question.schema)
            require_shapes(question.scaling, table, question.schema, len(question.sites))
            check_scaling(question.scaling, table)
            check_family(question.scaling.family, site.columns.family, table)
            _check_groups(site, question)
            site.adopted = adopt(site, question)
            adopted = site.adopted
            return Adopted(adopted.count, adopted.left_out, adopted.without_subgroups)
        case Ask(name, parameters):
            stage, rows = _stage(_adopted(site), name)
            check_parameters(stage, parameters, _length(site, rows))
            if isinstance(rows, Spool):
                return _of_batches(stage, parameters, rows)
            return one_by_one(statistics_of, parameters, stage, rows, often=stage.often)
        case Vjp(name, parameters, cotangent):
            stage, rows = _stage(_adopted(site), name)
            check_parameters(stage, parameters, _length(site, rows))
            check_finite(cotangent)
            if isinstance(rows, Spool):
                raise MessageError(
                    "derivatives are asked of tables in memory only",
                    found="a table in batches",
                    remedy="run the same version of unpooled everywhere",
                )
            return one_by_one(gradient_of, (parameters, cotangent), stage, rows)
        case Together(questions):
            return Replies(tuple(_answer(site, part) for part in questions))
    raise MessageError(
        "a site answers only questions of the protocol",
        found=type(question).__name__,
        remedy="run the same version of unpooled everywhere",
    )


def _party(site: Site) -> Party:
    if site.party is None:
        raise MessageError(
            "a site must have an identity to exchange keys",
            found="none",
            remedy="run the same version of unpooled everywhere",
        )
    return site.party


def in_single_precision(reply: R) -> R:
    """The reply with statistics of seven digits: as many as a fit needs, in half the bytes.

    Numbers that are too small or too large for single precision are sent in double.
    """

    def narrowed(leaf: object) -> object:
        if not isinstance(leaf, np.ndarray | jax.Array) or leaf.dtype != np.float64:
            return leaf
        sizes = np.abs(np.asarray(leaf))
        sizes = sizes[sizes > 0.0]
        return np.asarray(leaf, np.float32) if np.all((sizes > 1e-35) & (sizes < 1e35)) else leaf

    if isinstance(reply, Replies):
        return replace(reply, replies=tuple(in_single_precision(part) for part in reply.replies))
    if isinstance(reply, Statistics | Gradient | Summary):
        return replace(reply, **{name: jax.tree.map(narrowed, value) for name, value in vars(reply).items()})
    return reply


def _of_batches(stage: Stage, parameters: Parameters, rows: Spool) -> Statistics:
    """The statistics of a table in batches, merged at the site."""
    parts = [one_by_one(_batch, parameters, stage, batch, often=stage.often) for batch in batches(rows)]
    merged = stage.merged(jax.tree.map(lambda *leaves: np.stack(leaves), *parts))
    return jax.tree.map(np.asarray, merged)


def _length(site: Site, rows: Rows | Spool) -> int | None:
    """The length of the padded table, or of its batches; None without limits."""
    if not site.limits.cell:
        return None
    return rows.length if isinstance(rows, Spool) else len(rows.present)


def _require_centre(centre: np.ndarray, largest: np.ndarray) -> None:
    """Refuse a centre that is not one finite number for each column, near the values of the site."""
    right = np.shape(centre) == largest.shape and np.asarray(centre).dtype.kind in "iuf"
    if not right or not np.all(np.isfinite(centre)) or np.any(np.abs(centre) > 1e3 * (largest + 1.0)):
        raise MessageError(
            "a centre must be one number for each column",
            found="another shape, or numbers far from those of the site",
            remedy="run the same version of unpooled everywhere",
        )


def _complete(site: Site, schema: Schema) -> int:
    """The number of features of the covariates without missing values."""
    return sum(len(one.features) for one in schema.covariates if one.name in site.columns.covariates)


def _missing_patterns(site: Site, schema: Schema, centre: np.ndarray) -> Patterns:
    """Sums about the common means by pattern of missing values, for patterns with enough people."""
    _profile(site, schema)
    arrays = encode(site.frame, site.columns, schema, site=site.name)
    assert arrays.outcome is not None
    values = np.column_stack([arrays.covariates, arrays.incomplete, arrays.treatment, arrays.outcome])
    _require_centre(centre, np.nanmax(np.abs(values), axis=0, initial=0.0))
    found = suppressed(patterns_of(values, centre), smallest_pattern(site.limits, values.shape[1]))
    return Patterns(found.kept, found.patterns, found.rows)


def _rarest(site: Site, columns: tuple[ColumnSchema, ...]) -> dict[str, int]:
    """Number of people with the rarest level of each categorical column, whose level names are sent."""
    names = [column.name for column in columns if column.kind == "categorical"]
    found: dict[str, Counter[str]] = {name: Counter() for name in names}
    for frame in frames(site.table, names) if names else ():
        for name in names:
            found[name].update(level_counts(column(frame, name).dropna()))
    return {name: min(counts.values()) for name, counts in found.items()}


def _profile(site: Site, schema: Schema) -> Profile:
    """The site's table by this schema, if every group that the columns define is large enough.

    The kinds of the columns are those that the site itself sees: a flag that the schema calls numeric is
    still a flag.
    """
    check_rows(site.limits, description(site).rows)
    table = profile_of(site, schema)
    names = (*schema.features, site.columns.outcome, *schema.incomplete_features)
    check_cells(site.limits, table.cells)
    check_cells(site.limits, value_cells(names, table.values))
    if table.weight is not None:
        check_cells(site.limits, value_cells([site.columns.weight or ""], [value_counts(table.weight)]))
    _refuse_separating(schema, table, site.name)
    return table


def _check_groups(site: Site, question: Adopt) -> None:
    """Refuse a plan whose sums could be worked out for groups that are too small for its features."""
    method = methods.find(question.method)
    settings = methods.settings_of(method, question.settings)
    context = method.context(settings, question.scaling, question.seed)
    arms = tuple(description(site).arms.values())
    check_groups(site.limits, method.features(settings, context), arms, method.folds(settings))
    if question.diagnostics:
        check_groups(site.limits, diagnostic_rounds.features(question.scaling), arms, question.diagnostics)


def _summarise(table: Profile, centre: Centre | None, limits: Limits, *, by_site: bool) -> Summary:
    width = table.features + 1  # covariates and the outcome; incomplete columns follow
    if centre is None:
        total, present = table.seen * table.mean, table.seen[width:]
        sums: Arrays = {"total": total[:width], "seen": present, "seen_total": total[width:]}
        if table.weight is not None:
            weight = capped_weights(table.weight, np.ones((1, table.people), bool), limits.cell)
            sums["weight"] = np.array([weight.sum(), (weight**2).sum()])
        return Summary(table.people, sums, {"present": present} if by_site else {})
    _require_centre(centre.complete, table.largest[:width])
    _require_centre(centre.incomplete, table.largest[width:])
    shift = table.mean - np.concatenate([centre.complete, centre.incomplete])
    sums = {
        "sum": table.people * shift[:width],
        "cross": table.cross + table.people * np.outer(shift[:width], shift[:width]),
        "seen_squares": (table.powers[0] + table.seen * shift**2)[width:],
    }
    own = slice(table.features)
    moments: Arrays = {"mean": shift[own], "spread": table.sd[own], "shape": _shape(table)}
    return Summary(table.people, sums, moments if by_site else {})


def _shape(table: Profile) -> np.ndarray:
    """Skewness and excess kurtosis of each feature, to one decimal; zero for features with few values.

    From exact third and fourth moments one could work out how many people have each value of a feature that
    takes few values.
    """
    sd, features = table.sd, np.arange(table.features)
    many = np.array([counts is None for counts in table.values], dtype=bool)
    many &= sd > np.maximum(1e-10 * table.largest, SMALLEST)
    chosen = features[many[features]]
    third, fourth = table.powers[1:, chosen] / table.people
    found = np.zeros((2, table.features))
    moments = [third / sd[chosen] ** 3, fourth / sd[chosen] ** 4 - 3.0]
    found[:, chosen] = np.clip(moments, -MOST_SHAPE, MOST_SHAPE)
    return np.round(found, 1)


def _refuse_separating(schema: Schema, table: Profile, site: str) -> None:
    """Refuse a covariate with one constant value in each arm: it is a copy of the treatment."""
    treated = int(table.treatment.sum())
    if min(treated, table.people - treated) < SEPARATING:
        return
    (control, among), highest = table.arm_ranges
    constant = np.all(table.arm_ranges[0] == highest, axis=0)
    copies = np.flatnonzero(constant & (control != among))
    if len(copies):
        raise DataError(
            "no covariate may be a copy of the treatment",
            found=f"'{schema.features[copies[0]]}' separates the arms exactly at site '{site}'",
            remedy="remove the column from the study",
        )


def _adopted(site: Site) -> Adoption:
    if site.adopted is None:
        raise MessageError(
            "a site must adopt a study first", found="a question before `Adopt`", remedy="ask `Adopt` first"
        )
    return site.adopted


def _stage(study: Adoption, name: str) -> tuple[Stage, Rows | Spool]:
    """A stage and the rows on which it runs."""
    if name not in study.stages:
        raise MessageError(
            "the stage must belong to the method",
            found="an unknown stage",
            remedy="run the same version of unpooled everywhere",
        )
    diagnostic = study.diagnostic_rows if name.startswith(diagnostic_rounds.PREFIX) else None
    return study.stages[name], study.rows if diagnostic is None else diagnostic


def statistics_of(parameters: Parameters, stage: Stage, rows: Rows) -> Statistics:
    """What a site computes for one θ of `Ask`."""
    return stage.statistics(parameters, rows)


def _batch(parameters: Parameters, stage: Stage, rows: Rows) -> Statistics:
    return stage.of_batch(parameters, rows)


def gradient_of(leaves: tuple[Parameters, Statistics], stage: Stage, rows: Rows) -> Gradient:
    """What a site computes for one θ of `Vjp`."""
    parameters, cotangent = leaves
    value, pull = jax.vjp(
        lambda free: stage.statistics(replace(parameters, free=free), rows), parameters.free
    )
    (gradient,) = pull(cotangent)
    # A scalar statistic is returned with the gradient (Algorithm 1); structured ones are sent by `Ask`.
    return Gradient(gradient, value.summed if isinstance(value.summed, jax.Array) else None)
