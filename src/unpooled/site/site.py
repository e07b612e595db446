"""A site: its table, its limits, and the study it has adopted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from unpooled.data import Table, check, read, without_unknown
from unpooled.data.model_matrix import encode
from unpooled.disclosure.limits import NONE, Limits
from unpooled.errors import MessageError, StudyError
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


@dataclass
class Site:
    """A site with its rows in memory. `adopted` is set once the sites have agreed."""

    name: str
    frame: pd.DataFrame
    columns: ColumnRoles
    limits: Limits = NONE
    adopted: Adoption | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Adoption:
    """The study as this site runs it: rows in standard units, and the method's stages."""

    rows: Rows
    count: int
    schema: Schema
    scaling: Scaling
    method: Method
    settings: MethodSettings
    context: Any
    stages: dict[str, Stage]
    seed: int
    diagnostic_rows: Rows | None = None
    """The rows with the regressors and folds of the diagnostics."""


def adopt(site: Site, question: Adopt) -> Adoption:
    """Standardise the rows by the agreed scaling and build the method's stages."""
    arrays = encode(site.frame, site.columns, question.schema, site=site.name)
    assert arrays.outcome is not None
    if site.name not in question.sites:
        raise MessageError(
            "the site must be part of the study",
            found=f"no '{site.name}' among its sites",
            remedy="use the site's name in the consortium",
        )
    index = question.sites.index(site.name)
    method = methods.find(question.method)
    settings = methods.settings_of(method, dict(question.settings))
    context = method.Context(**question.context)
    rows = make_rows(
        standardise(arrays.covariates, question.scaling),
        arrays.treatment,
        (arrays.outcome - question.scaling.outcome_mean) / question.scaling.outcome_sd,
        fold=folds(arrays.treatment, method.folds(settings), stream(question.seed, "folds", index)),
        site=index,
        incomplete=standardise_incomplete(arrays.incomplete, question.scaling),
        least=site.limits.cell,
    )
    own, diagnostic_rows = method.stages(settings, context), None
    stages = diagnostic_rounds.joined(own, question.scaling, question.diagnostics)
    if question.diagnostics:
        fold = folds(
            arrays.treatment, diagnostic_rounds.FOLDS, stream(question.seed, "diagnostic folds", index)
        )
        diagnostic_rows = with_regressors(rows, fold)
    return Adoption(
        rows,
        len(arrays.treatment),
        question.schema,
        question.scaling,
        method,
        settings,
        context,
        stages,
        question.seed,
        diagnostic_rows,
    )


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
