"""A site: its table, its limits, and the study it has adopted."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from unpooled.data import Table, check, read, without_unknown
from unpooled.data.model_matrix import encode
from unpooled.disclosure.limits import NONE, Limits
from unpooled.disclosure.protection import fewest_people
from unpooled.errors import MessageError, StudyError
from unpooled.maths.streams import stream
from unpooled.methods import method as methods
from unpooled.methods.diagnostics import rounds as diagnostic_rounds
from unpooled.methods.diagnostics.balance import with_regressors
from unpooled.methods.method import Method, find
from unpooled.methods.settings import MethodSettings
from unpooled.protocol.codec import encode as encode_message
from unpooled.protocol.messages import Adopt
from unpooled.protocol.records import Scaling
from unpooled.protocol.rows import HALF, Rows, make_rows
from unpooled.protocol.stage import Stage
from unpooled.site.standard_units import (
    Standardised,
    protected,
    standardised,
)
from unpooled.study import ColumnRoles, Schema, Study


@dataclass
class Site:
    """A site with its rows in memory. `adopted` is set once the sites have agreed."""

    name: str
    frame: pd.DataFrame = field(repr=False)
    columns: ColumnRoles
    limits: Limits = NONE
    salt: int | None = field(default=None, repr=False)
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
    question: str = ""
    """SHA-256 of the question by which the study was adopted."""
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
    rng = stream(question.seed, "further folds", salt)
    drawn = further_folds(arrays.treatment, fold, count, settings.fold_draws, rng)
    plain = standardised(arrays, question.scaling)
    groups = [arrays.treatment == arm for arm in (0, 1)]
    groups = [(one == f) & arm for one in drawn for arm in groups for f in range(max(count, 1))]
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
            salt=salt % HALF**2,
            least=site.limits.cell,
            more_folds=drawn[1:],
            per_feature=1.0 / site.limits.share,
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
        question=hashlib.sha256(encode_message(question)).hexdigest(),
        people=int(fewest) if np.isfinite(fewest) else None,
        left_out=left_out,
        diagnostic_rows=None if diagnostic_fold is None else with_regressors(sent, diagnostic_fold),
    )


def folds(treatment: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Assign each row to a fold, spreading each arm evenly over the folds; reproducible from the seed.

    A method that holds out no rows (`count` 0) has one fold with all rows.
    """
    fold = np.zeros(len(treatment), dtype=np.int32)
    for arm in (0.0, 1.0):
        people = np.flatnonzero(treatment == arm)
        fold[people] = rng.permutation(len(people)) % max(count, 1)
    return fold


def further_folds(
    treatment: np.ndarray, fold: np.ndarray, count: int, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """All draws of the folds [draw, n], beginning with `fold`.

    Each further draw spreads the people who share an arm and all folds of the draws before evenly over the
    folds. No two draws have nearly the same fold, whose difference would be a sum over few people.
    """
    drawn = [np.asarray(fold, dtype=np.int32)]
    while len(drawn) < draws and count > 1:
        new = np.zeros(len(treatment), dtype=np.int32)
        for arm in (0.0, 1.0):
            people = np.flatnonzero(treatment == arm)
            _, alike = np.unique(np.array(drawn)[:, people], axis=1, return_inverse=True)
            alike = np.ravel(alike)
            # People in random order, those who are alike side by side, are dealt out to the folds in blocks.
            order = np.lexsort((rng.random(len(people)), rng.permutation(alike.max(initial=0) + 1)[alike]))
            blocks = [rng.permutation(count) for _ in range(-(-len(people) // count))]
            new[people[order]] = np.concatenate([*blocks, np.zeros(0, int)])[: len(people)]
        drawn.append(new)
    return np.array(drawn)


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
