"""A site: its table, its limits, and what it has adopted for the study under way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from unpooled.data.model_matrix import encode
from unpooled.errors import MessageError
from unpooled.methods import method as methods
from unpooled.methods.diagnostics import regressors, study_diagnostics
from unpooled.protocol.messages import Adopt, Tree
from unpooled.protocol.rows import Rows, make_rows
from unpooled.protocol.stage import Stage
from unpooled.site.limits import NONE, Limits
from unpooled.study import ColumnRoles, Schema


@dataclass
class Site:
    """What stands beside the rows. `adopted` is set once the sites have agreed."""

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
    scaling: Tree
    method: Any
    settings: Any
    context: Tree
    stages: dict[str, Stage]
    looking: Rows | None = None
    """The rows as those stages see them that look at a study beside its method's."""


def adopt(site: Site, question: Adopt) -> Adoption:
    """Standardise by the agreed numbers and build the method's stages."""
    schema = Schema(**question.schema)
    arrays = encode(site.frame, site.columns, schema, site=site.name)
    assert arrays.outcome is not None
    if site.name not in question.sites:
        raise MessageError(
            "a site is asked about a study that it is part of",
            found=f"no '{site.name}' among its sites",
            remedy="give the site the name that the consortium knows it by",
        )
    index = question.sites.index(site.name)
    method = methods.find(question.method)
    settings = methods.settings_of(method, dict(question.settings))
    rows = make_rows(
        standardise(arrays.covariates, question.scaling),
        arrays.treatment,
        (arrays.outcome - question.scaling["outcome_mean"]) / question.scaling["outcome_sd"],
        fold=folds(arrays.treatment, method.folds(settings), [question.seed, 2, index]),
        site=index,
        incomplete=standardise_incomplete(arrays.incomplete, question.scaling),
    )
    own, beside = method.stages(settings, question.context), None
    stages = study_diagnostics.joined(own, question.scaling, question.look)
    if question.look:
        fold = folds(arrays.treatment, study_diagnostics.FOLDS, [question.seed, 7, index])
        beside = regressors.beside(rows, fold)
    return Adoption(
        rows,
        len(arrays.treatment),
        schema,
        question.scaling,
        method,
        settings,
        question.context,
        stages,
        beside,
    )


def standardise(covariates: np.ndarray, scaling: Tree) -> np.ndarray:
    return (covariates - scaling["mean"]) / scaling["sd"]


def standardise_incomplete(incomplete: np.ndarray, scaling: Tree) -> np.ndarray:
    return (incomplete - scaling["incomplete_mean"]) / scaling["incomplete_sd"]


def folds(treatment: np.ndarray, count: int, seed: list[int]) -> np.ndarray:
    """A fold for each row, each arm spread evenly over the folds; replays from the seed.

    One fold of everybody where a method holds nobody out: without it there is nobody to tell of.
    """
    rng = np.random.default_rng(seed)
    fold = np.zeros(len(treatment), dtype=np.int32)
    for arm in (0.0, 1.0):
        people = np.flatnonzero(treatment == arm)
        fold[people] = rng.permutation(len(people)) % max(count, 1)
    return fold
