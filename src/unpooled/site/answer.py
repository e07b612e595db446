"""The complete disclosure surface of a site: one match over all questions it may be asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import jax
import numpy as np

from unpooled.data import model_matrix
from unpooled.data.model_matrix import encode
from unpooled.data.stored_columns import describe
from unpooled.disclosure.bounds import check_finite, check_parameters
from unpooled.disclosure.groups import level_cells, observed_cells, rarest_levels, value_cells
from unpooled.disclosure.limits import check_cells, check_groups, check_rows, smallest_pattern
from unpooled.errors import DataError, MessageError, UnpooledError
from unpooled.maths.missing_patterns import patterns_of, suppressed
from unpooled.methods import method as methods
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.protocol.batch import one_by_one
from unpooled.protocol.messages import (
    Adopt,
    Adopted,
    Ask,
    Centre,
    Describe,
    Described,
    Gradient,
    Message,
    MissingPatterns,
    Patterns,
    Refusal,
    Replies,
    Reply,
    Statistics,
    Summarise,
    Summary,
    Together,
    Vjp,
)
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage
from unpooled.site.site import Adoption, Site, adopt
from unpooled.site.standard_units import check_family, check_scaling, require_shapes
from unpooled.study import ColumnSchema, Schema

R = TypeVar("R", bound=Message)
SEPARATING = 5
"""Smallest arm size at which a covariate that separates the arms exactly is taken to be the treatment."""


FEW_VALUES = 10
"""A feature with at most this many distinct values at a site has its mean and sd sent only."""
MOST_SHAPE = 5.0
"""Skewness and kurtosis are clipped to this size."""


def answer(site: Site, question: Message) -> Reply:
    """The site's reply or its refusal with reasons; never a row."""
    try:
        reply = _answer(site, question)
        return in_single_precision(reply) if site.limits.cell else reply
    except UnpooledError as error:
        return Refusal(type(error).__name__, error.expected, error.found, error.remedy)


def _answer(site: Site, question: Message) -> Reply:
    match question:
        case Describe():
            described = describe(site.frame, site.columns)
            check_rows(site.limits, described.rows)
            check_cells(site.limits, {f"arm {level}": count for level, count in described.arms.items()})
            check_cells(site.limits, _rarest(site, (*described.columns, *described.incomplete)))
            return Described(described, site.limits)
        case Summarise(schema, centre):
            arrays = _table(site, schema)
            check_groups(site.limits, 1 + len(schema.features), (len(site.frame),), folds=0)
            return Summary(_summarise(arrays, schema, centre))
        case MissingPatterns(schema, centre):
            return _missing_patterns(site, schema, centre)
        case Adopt():
            arrays = _table(site, question.schema)
            require_shapes(question.scaling, arrays, question.schema, len(question.sites))
            check_scaling(question.scaling, arrays)
            check_family(question.scaling.family, site.columns.family, arrays)
            _check_groups(site, question)
            site.adopted = adopt(site, question)
            return Adopted(site.adopted.count, site.adopted.left_out)
        case Ask(name, parameters):
            stage, rows = _stage(_adopted(site), name)
            check_parameters(stage, parameters, _length(site, rows))
            return one_by_one(statistics_of, parameters, stage, rows, often=stage.often)
        case Vjp(name, parameters, cotangent):
            stage, rows = _stage(_adopted(site), name)
            check_parameters(stage, parameters, _length(site, rows))
            check_finite(cotangent)
            return one_by_one(gradient_of, (parameters, cotangent), stage, rows)
        case Together(questions):
            return Replies(tuple(_answer(site, part) for part in questions))
    raise MessageError(
        "a site answers only questions of the protocol",
        found=type(question).__name__,
        remedy="run the same version of unpooled everywhere",
    )


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


def _length(site: Site, rows: Rows) -> int | None:
    """The length of the padded table; None without limits."""
    return len(rows.present) if site.limits.cell else None


def _require_centre(centre: np.ndarray, values: np.ndarray) -> None:
    """Refuse a centre that is not one finite number for each column, near the values of the site."""
    far = 1e3 * (np.nanmax(np.abs(values), axis=0, initial=0.0) + 1.0)
    right = np.shape(centre) == values.shape[1:] and np.asarray(centre).dtype.kind in "iuf"
    if not right or not np.all(np.isfinite(centre)) or np.any(np.abs(centre) > far):
        raise MessageError(
            "a centre must be one number for each column",
            found="another shape, or numbers far from those of the site",
            remedy="run the same version of unpooled everywhere",
        )


def _missing_patterns(site: Site, schema: Schema, centre: np.ndarray) -> Patterns:
    """Sums about the common means by pattern of missing values, for patterns with enough people."""
    arrays = _table(site, schema)
    assert arrays.outcome is not None
    values = np.column_stack([arrays.covariates, arrays.incomplete, arrays.treatment, arrays.outcome])
    _require_centre(centre, values)
    found = suppressed(patterns_of(values, centre), smallest_pattern(site.limits, values.shape[1]))
    return Patterns(found.kept, found.patterns, found.rows)


def _rarest(site: Site, columns: tuple[ColumnSchema, ...]) -> dict[str, int]:
    categorical = [column.name for column in columns if column.kind == "categorical"]
    return rarest_levels({name: site.frame[name].dropna().tolist() for name in categorical})


def _table(site: Site, schema: Schema) -> model_matrix.Arrays:
    """The site's table by this schema, if every group that the columns define is large enough.

    The kinds of the columns are those that the site itself sees: a flag that the schema calls numeric is
    still a flag.
    """
    check_rows(site.limits, len(site.frame))
    arrays = encode(site.frame, site.columns, schema, site=site.name)
    assert arrays.outcome is not None
    check_cells(site.limits, level_cells(schema.covariates, arrays.covariates))
    check_cells(site.limits, observed_cells(schema, arrays.incomplete))
    check_cells(site.limits, value_cells(schema.features, arrays.covariates))
    check_cells(site.limits, value_cells(schema.incomplete_features, arrays.incomplete))
    check_cells(site.limits, value_cells((site.columns.outcome,), arrays.outcome[:, None]))
    _refuse_separating(schema, arrays.covariates, arrays.treatment, site.name)
    return arrays


def _check_groups(site: Site, question: Adopt) -> None:
    """Refuse a plan whose sums could be worked out for groups that are too small for its features."""
    method = methods.find(question.method)
    settings = methods.settings_of(method, question.settings)
    context = method.context(settings, question.scaling, question.seed)
    arms = tuple(describe(site.frame, site.columns).arms.values())
    check_groups(site.limits, method.features(settings, context), arms, method.folds(settings))
    if question.diagnostics:
        check_groups(site.limits, diagnostic_rounds.features(question.scaling), arms, question.diagnostics)


def _summarise(arrays: model_matrix.Arrays, schema: Schema, centre: Centre | None) -> Arrays:
    assert arrays.outcome is not None
    values = np.column_stack([arrays.covariates, arrays.outcome])
    if centre is None:
        seen = np.sum(~np.isnan(arrays.incomplete), axis=0)
        return {
            "count": len(values),
            "total": values.sum(axis=0),
            "seen": seen,
            "seen_total": np.nansum(arrays.incomplete, axis=0),
        }
    _require_centre(centre.complete, values)
    _require_centre(centre.incomplete, arrays.incomplete)
    centred = values - centre.complete
    return {
        "count": len(values),
        "sum": centred.sum(axis=0),
        "cross": centred.T @ centred,
        "seen_squares": np.nansum((arrays.incomplete - centre.incomplete) ** 2, axis=0),
        "shape": _shape(arrays.covariates),
    }


def _shape(covariates: np.ndarray) -> np.ndarray:
    """Skewness and excess kurtosis of each feature, to one decimal; zero for features with few values.

    From exact third and fourth moments one could work out how many people have each value of a feature that
    takes few values.
    """
    deviation = covariates - covariates.mean(axis=0)
    sd = np.sqrt((deviation**2).mean(axis=0))
    many = np.array([len(np.unique(column)) > FEW_VALUES for column in covariates.T], dtype=bool)
    many &= sd > 1e-10 * np.abs(covariates).max(axis=0, initial=0.0)
    z = deviation[:, many] / sd[many]
    found = np.zeros((2, covariates.shape[1]))
    found[:, many] = np.clip([(z**3).mean(axis=0), (z**4).mean(axis=0) - 3.0], -MOST_SHAPE, MOST_SHAPE)
    return np.round(found, 1)


def _refuse_separating(schema: Schema, covariates: np.ndarray, treatment: np.ndarray, site: str) -> None:
    """Refuse a covariate with one constant value in each arm: it is a copy of the treatment."""
    treated, control = covariates[treatment == 1], covariates[treatment == 0]
    if min(len(treated), len(control)) < SEPARATING:
        return
    constant = (np.ptp(treated, axis=0) == 0) & (np.ptp(control, axis=0) == 0)
    copies = np.flatnonzero(constant & (treated[:1] != control[:1]).ravel())
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


def _stage(study: Adoption, name: str) -> tuple[Stage, Rows]:
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


def gradient_of(leaves: tuple[Parameters, Statistics], stage: Stage, rows: Rows) -> Gradient:
    """What a site computes for one θ of `Vjp`."""
    parameters, cotangent = leaves
    value, pull = jax.vjp(
        lambda free: stage.statistics(replace(parameters, free=free), rows), parameters.free
    )
    (gradient,) = pull(cotangent)
    # A scalar statistic is returned with the gradient (Algorithm 1); structured ones are sent by `Ask`.
    return Gradient(gradient, value.summed if isinstance(value.summed, jax.Array) else None)
