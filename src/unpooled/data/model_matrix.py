"""Encode a checked table as arrays in the order of the agreed schema, without standardising it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from unpooled.data.stored_columns import column, level_codes, numbers, require_columns, stored_as
from unpooled.data.validation import (
    LIST_AS_INCOMPLETE,
    require_complete,
    require_finite,
    require_outcome,
    require_storage,
    require_treatment,
    require_weights,
)
from unpooled.errors import DataError
from unpooled.study import ColumnRoles, ColumnSchema, Schema


@dataclass(frozen=True)
class Arrays:
    """A site's rows as float64 arrays."""

    covariates: np.ndarray  # [rows, features], in the order of schema.features
    treatment: np.ndarray  # [rows], 1.0 = treated
    outcome: np.ndarray | None  # [rows]
    incomplete: np.ndarray  # [rows, features of incomplete columns], NaN where missing
    gaps: np.ndarray  # [rows, complete covariates], where a missing value was filled
    weight: np.ndarray | None = None  # [rows], sampling weights as they are in the table
    cluster: np.ndarray | None = None  # [rows], the place of the cluster among those of the table


def encode(frame: pd.DataFrame, columns: ColumnRoles, schema: Schema, *, site: str) -> Arrays:
    """Encode a table; the outcome is included if the table has it."""
    has_outcome = columns.outcome in frame.columns
    return Arrays(
        covariates=encode_covariates(frame, columns, schema, site=site),
        treatment=_treatment(frame, columns, schema, site),
        outcome=_outcome(frame, columns, site) if has_outcome else None,
        incomplete=encode_incomplete(frame, schema, site=site),
        gaps=gaps(frame, schema),
        weight=_weight(frame, columns, site),
        cluster=_cluster(frame, columns, site),
    )


def encode_covariates(frame: pd.DataFrame, columns: ColumnRoles, schema: Schema, *, site: str) -> np.ndarray:
    """The features [rows, features] of the complete covariates."""
    read = [covariate.name for covariate in schema.covariates if covariate.flags is None]
    require_columns(read, frame.columns, site=site)
    blocks = [_covariate(frame, covariate, site) for covariate in schema.covariates]
    return np.concatenate(blocks, axis=1) if blocks else np.empty((len(frame), 0))


def _weight(frame: pd.DataFrame, columns: ColumnRoles, site: str) -> np.ndarray | None:
    if columns.weight is None:
        return None
    require_columns([columns.weight], frame.columns, site=site)
    weight = column(frame, columns.weight)
    require_weights(weight, site=site)
    return numbers(weight)


def _cluster(frame: pd.DataFrame, columns: ColumnRoles, site: str) -> np.ndarray | None:
    """The same numbers in every order of the rows: clusters are ordered by name."""
    if columns.cluster is None:
        return None
    require_columns([columns.cluster], frame.columns, site=site)
    codes, names = level_codes(column(frame, columns.cluster))
    place = np.empty(len(names), dtype=np.int32)
    place[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return place[codes]


def gaps(frame: pd.DataFrame, schema: Schema) -> np.ndarray:
    """Whose value of each complete covariate is missing, and filled by its schema [rows, covariates]."""
    found = [
        np.zeros(len(frame), bool) if one.filled is None else column(frame, one.name).isna().to_numpy(bool)
        for one in schema.covariates
    ]
    return np.column_stack(found) if found else np.zeros((len(frame), 0), bool)


def _covariate(frame: pd.DataFrame, covariate: ColumnSchema, site: str) -> np.ndarray:
    if covariate.flags is not None:
        return column(frame, covariate.flags).isna().to_numpy(np.float64)[:, None]
    series = column(frame, covariate.name)
    if covariate.filled is None:
        return _features(series, covariate, site)
    return _seen_features(series, covariate, site, covariate.filled)


def _seen_features(series: pd.Series, covariate: ColumnSchema, site: str, otherwise: float) -> np.ndarray:
    """The features of the values that are present, and a number in place of all others."""
    found, seen = np.full((len(series), len(covariate.features)), otherwise), series.notna().to_numpy(bool)
    if seen.any():
        found[seen] = _features(series.loc[seen], covariate, site)
    return found


def encode_incomplete(frame: pd.DataFrame, schema: Schema, *, site: str) -> np.ndarray:
    """The features of the incomplete covariates; all features of a missing value are NaN."""
    require_columns([each.name for each in schema.incomplete], frame.columns, site=site)
    blocks = [_seen_features(column(frame, each.name), each, site, np.nan) for each in schema.incomplete]
    return np.concatenate(blocks, axis=1) if blocks else np.empty((len(frame), 0))


def _features(series: pd.Series, covariate: ColumnSchema, site: str) -> np.ndarray:
    require_storage(series, site=site)
    require_complete(series, site=site, remedy=LIST_AS_INCOMPLETE)
    if covariate.kind == "categorical":
        return _dummies(series, covariate, site)
    if stored_as(series) == "text":
        raise DataError(
            f"column '{covariate.name}' must be numeric at site '{site}', as the sites agreed",
            found="text, or a pandas category",
            remedy="recode the column as numbers",
        )
    require_finite(series, site=site)
    return numbers(series)[:, None]


def _dummies(series: pd.Series, covariate: ColumnSchema, site: str) -> np.ndarray:
    """One 0/1 feature for each level except the first."""
    codes, names = level_codes(series)
    unseen = int(np.array([name not in covariate.levels for name in names], dtype=bool)[codes].sum())
    if unseen:
        raise DataError(
            f"column '{covariate.name}' must have only the agreed levels at site '{site}'",
            found=f"{unseen} of {len(codes)} rows with another level",
            remedy="recode these rows to a known level, or leave them out",
        )
    each = np.array(names, dtype=object)[:, None] == np.array(covariate.levels[1:], dtype=object)
    return each.astype(np.float64)[codes]


def _treatment(frame: pd.DataFrame, columns: ColumnRoles, schema: Schema, site: str) -> np.ndarray:
    require_columns([columns.treatment], frame.columns, site=site)
    treatment = column(frame, columns.treatment)
    require_treatment(treatment, site=site)
    codes, names = level_codes(treatment)
    known = (schema.control, schema.treated)
    strange = int(np.array([name not in known for name in names], dtype=bool)[codes].sum())
    if strange:
        raise DataError(
            f"treatment '{columns.treatment}' must have only the two agreed levels at site '{site}'",
            found=f"{strange} of {len(codes)} rows with another level",
            remedy="recode these rows, or leave them out",
        )
    return np.array([name == schema.treated for name in names], dtype=np.float64)[codes]


def _outcome(frame: pd.DataFrame, columns: ColumnRoles, site: str) -> np.ndarray:
    require_columns([columns.outcome], frame.columns, site=site)
    outcome = column(frame, columns.outcome)
    require_outcome(outcome, columns, site=site)
    return numbers(outcome)
