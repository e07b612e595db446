"""A site: its table, its limits, and the study it has adopted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd

from unpooled.data import Table, check, read, without_unknown
from unpooled.data.model_matrix import Arrays, encode
from unpooled.disclosure.limits import NONE, Limits
from unpooled.disclosure.protection import fewest_people, protect
from unpooled.errors import LimitRefusal, MessageError, StudyError
from unpooled.maths.streams import stream
from unpooled.methods import method as methods
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.methods.diagnostics.balance import with_regressors
from unpooled.methods.method import Method, find
from unpooled.methods.settings import MethodSettings
from unpooled.protocol.messages import Adopt
from unpooled.protocol.records import Scaling
from unpooled.protocol.rows import Rows, make_rows
from unpooled.protocol.stage import Stage
from unpooled.study import ColumnRoles, Schema, Study

MOST_LOST = 0.25
"""Largest share of the outcome's variance that clipping may remove."""
FURTHEST = 20.0
"""How much larger values may be in the study's units than in units of the site's own spread."""


@dataclass
class Site:
    """A site with its rows in memory. `adopted` is set once the sites have agreed."""

    name: str
    frame: pd.DataFrame
    columns: ColumnRoles
    limits: Limits = NONE
    salt: int | None = None
    """A secret from which folds and random numbers are drawn; None if all tables are in one process, where
    they depend on the seed alone."""
    adopted: Adoption | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Adoption:
    """The study as this site runs it: rows in standard units, and the method's stages."""

    rows: Rows
    """The rows as the stages see them: with limits, protected so that nobody dominates a sum."""
    own_rows: Rows
    """The rows as they are, for effects of people, which do not leave the site."""
    count: int
    schema: Schema
    scaling: Scaling
    method: Method
    settings: MethodSettings
    context: object
    stages: dict[str, Stage]
    seed: int
    people: int | None = None
    """The fewest effective people behind the squares of any column in any group; None without limits."""
    left_out: tuple[str, ...] = ()
    """Columns that no clipping protects, which are constant in `rows`."""
    diagnostic_rows: Rows | None = None
    """The rows with the regressors and folds of the diagnostics."""


def adopt(site: Site, question: Adopt) -> Adoption:
    """Standardise and protect the rows, and build the method's stages."""
    arrays = encode(site.frame, site.columns, question.schema, site=site.name)
    if site.name not in question.sites:
        raise MessageError(
            "the site must be part of the study",
            found=f"no '{site.name}' among its sites",
            remedy="use the site's name in the consortium",
        )
    index = question.sites.index(site.name)
    method = methods.find(question.method)
    settings = methods.settings_of(method, dict(question.settings))
    context = method.context(settings, question.scaling, question.seed)
    salt = index if site.salt is None else site.salt
    count = method.folds(settings)
    fold = folds(arrays.treatment, count, stream(question.seed, "folds", salt))
    require_shapes(question.scaling, arrays, len(question.sites))
    check_scaling(question.scaling, arrays)
    plain = standardised(arrays, question.scaling)
    groups = [arrays.treatment == arm for arm in (0, 1)]
    groups = [(fold == f) & arm for arm in groups for f in range(max(count, 1))]
    diagnostic_fold = None
    if question.diagnostics:
        rng = stream(question.seed, "diagnostic folds", salt)
        diagnostic_fold = folds(arrays.treatment, question.diagnostics, rng)
        groups += [
            (diagnostic_fold == f) & (arrays.treatment == a)
            for a in (0, 1)
            for f in range(question.diagnostics)
        ]
    shielded, left_out = protected(plain, np.array(groups), site.limits.cell, question.schema)

    def rows(values: Standardised) -> Rows:
        return make_rows(
            values.covariates,
            arrays.treatment,
            values.outcome,
            fold=fold,
            site=index,
            incomplete=values.incomplete,
            salt=salt % 2**31,
            least=site.limits.cell,
        )

    everything = np.column_stack([shielded.covariates, shielded.outcome, shielded.incomplete])
    fewest = fewest_people(everything, np.array(groups)) if site.limits.cell else np.inf
    own = rows(plain)
    sent = own if site.limits.cell == 0 else rows(shielded)
    return Adoption(
        rows=sent,
        own_rows=own,
        count=len(arrays.treatment),
        schema=question.schema,
        scaling=question.scaling,
        method=method,
        settings=settings,
        context=context,
        stages=diagnostic_rounds.joined(
            method.stages(settings, context), question.scaling, question.diagnostics > 0
        ),
        seed=question.seed,
        people=int(fewest) if np.isfinite(fewest) else None,
        left_out=left_out,
        diagnostic_rows=None if diagnostic_fold is None else with_regressors(sent, diagnostic_fold),
    )


class Standardised(NamedTuple):
    """A table in standard units; NaN marks a missing value of `incomplete`."""

    covariates: np.ndarray
    outcome: np.ndarray
    incomplete: np.ndarray


def standardised(arrays: Arrays, scaling: Scaling) -> Standardised:
    assert arrays.outcome is not None
    return Standardised(
        standardise(arrays.covariates, scaling),
        (arrays.outcome - scaling.outcome_mean) / scaling.outcome_sd,
        standardise_incomplete(arrays.incomplete, scaling),
    )


def protected(
    plain: Standardised, groups: np.ndarray, least: float, schema: Schema
) -> tuple[Standardised, tuple[str, ...]]:
    """The table with every column protected, and the names of the columns that had to be left out.

    A complete column that is left out has the mean of all sites everywhere, an incomplete one is missing.
    """
    if not least:
        return plain, ()
    outcome = protect(plain.outcome[:, None], groups, least, extremes=True)
    lost = 1.0 - float(np.var(outcome.values)) / max(float(np.var(plain.outcome)), 1e-300)
    if outcome.left_out[0] or lost > MOST_LOST:
        raise LimitRefusal(
            f"no sum of outcomes may rest on {least:g} people or fewer",
            found="an arm, or a fold of an arm, in which few people have most of the outcome",
            remedy="use another scale of the outcome, such as its logarithm, or leave this site out",
        )
    complete, incomplete = (protect(part, groups, least) for part in (plain.covariates, plain.incomplete))
    names = np.array([*schema.features, *schema.incomplete_features])
    left_out = names[np.concatenate([complete.left_out, incomplete.left_out])]
    return Standardised(
        np.where(complete.left_out, 0.0, complete.values),
        outcome.values[:, 0],
        np.where(incomplete.left_out, np.nan, incomplete.values),
    ), tuple(left_out.tolist())


def require_shapes(scaling: Scaling, arrays: Arrays, sites: int) -> None:
    """Refuse a scaling of other columns or of another number of sites."""
    features, incomplete = arrays.covariates.shape[1], arrays.incomplete.shape[1]
    expected = {
        "mean": (features,),
        "sd": (features,),
        "binary_rate": (features,),
        "correlation": (features, features),
        "incomplete_mean": (incomplete,),
        "incomplete_sd": (incomplete,),
        "site_distances": (sites, sites),
    }
    right = all(np.shape(getattr(scaling, name)) == shape for name, shape in expected.items())
    if not right or scaling.sites != sites or scaling.people < len(arrays.treatment):
        raise MessageError(
            "a scaling must be of the columns and sites of the study",
            found="another number of columns, sites or people",
            remedy="run the same version of unpooled everywhere",
        )


def check_scaling(scaling: Scaling, arrays: Arrays) -> None:
    """Refuse a scaling that is not finite, or under which the site's values are far too large.

    Scaling is a linear change of units, so that a moderate error in it reveals nothing. Very large values
    would make some people dominate, or turn smooth functions of the values into steps.
    """
    sds = (scaling.sd, scaling.incomplete_sd, np.array([scaling.outcome_sd]))
    parts = (scaling.mean, scaling.incomplete_mean, scaling.correlation, scaling.site_distances, *sds)
    finite = all(np.all(np.isfinite(part)) for part in parts) and all(np.all(part > 0.0) for part in sds)
    if finite and _moderate(arrays, standardised(arrays, scaling)):
        diagonal = np.diagonal(scaling.correlation)
        if np.all(np.abs(scaling.correlation) <= 1.0 + 1e-6) and np.all(diagonal >= 1e-4):
            return
    raise MessageError(
        "a scaling must standardise the columns of the site",
        found="a mean or a standard deviation far from those of the site",
        remedy="run the same version of unpooled everywhere",
    )


def _moderate(arrays: Arrays, plain: Standardised) -> bool:
    """Whether no value in standard units is far larger than in units of the site's own spread."""
    assert arrays.outcome is not None
    raw = np.column_stack([arrays.covariates, arrays.outcome, arrays.incomplete])
    seen = ~np.isnan(raw).all(axis=0)
    raw, scaled = raw[:, seen], np.column_stack([*plain])[:, seen]
    own = np.abs(raw - np.nanmean(raw, axis=0)) / np.maximum(np.nanstd(raw, axis=0), 1e-300)
    return bool(np.nanmax(np.abs(scaled)) <= FURTHEST * max(float(np.nanmax(own)), 1.0))


def standardise(covariates: np.ndarray, scaling: Scaling) -> np.ndarray:
    return (covariates - scaling.mean) / scaling.sd


def standardise_incomplete(incomplete: np.ndarray, scaling: Scaling) -> np.ndarray:
    return (incomplete - scaling.incomplete_mean) / scaling.incomplete_sd


def folds(treatment: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Assign each row to a fold, spreading each arm evenly over the folds; reproducible from the seed.

    A method that holds out no rows (`count` 0) has one fold with all rows.
    """
    fold = np.zeros(len(treatment), dtype=np.int32)
    for arm in (0.0, 1.0):
        people = np.flatnonzero(treatment == arm)
        fold[people] = rng.permutation(len(people)) % max(count, 1)
    return fold


def open_site(name: str, source: Table, study: Study, limits: Limits) -> Site:
    """Read and check a site's table, before any study is adopted."""
    require_complete_columns(study)
    frame = without_unknown(read(source, study.columns, site=name), study.columns)
    check(frame, study.columns, site=name)
    return Site(name, frame, study.columns, limits)


def require_complete_columns(study: Study) -> None:
    """Refuse incomplete confounders if the method would ignore them silently."""
    if study.columns.incomplete and not find(study.method.name).takes_incomplete:
        raise StudyError(
            f"the method '{study.method.name}' supports complete columns only",
            found=f"incomplete: {', '.join(study.columns.incomplete)}",
            remedy="remove these columns, impute them first, or use a method for incomplete columns",
        )
