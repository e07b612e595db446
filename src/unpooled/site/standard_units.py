"""A site's table in the study's units: the scaling is checked, and with limits the columns are protected."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.data.model_matrix import Arrays
from unpooled.disclosure.protection import protect
from unpooled.errors import LimitRefusal, MessageError
from unpooled.protocol.records import REFERENCES, IncompleteColumn, Scaling
from unpooled.site.profile import Profile
from unpooled.study import Schema
from unpooled.study.family import AskedFamily

MOST_LOST = 0.25
"""Largest share of the outcome's variance that clipping may remove."""
FURTHEST = 20.0
"""How much larger values may be in the study's units than in units of the site's own spread."""


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
    plain: Standardised,
    groups: np.ndarray,
    least: float,
    schema: Schema,
    weight: np.ndarray | None = None,
) -> tuple[Standardised, tuple[str, ...]]:
    """The table with every column protected, and the names of the columns that had to be left out.

    A complete column that is left out has the mean of all sites everywhere, an incomplete one is missing.
    """
    if not least:
        return plain, ()
    outcome = protect(plain.outcome[:, None], groups, least, extremes=True, weight=weight)
    lost = float(np.var(plain.outcome) - np.var(outcome.values))
    if outcome.left_out[0] or lost > MOST_LOST * float(np.var(plain.outcome)):
        raise LimitRefusal(
            f"no sum of outcomes may rest on {least:g} people or fewer",
            found="an arm, or a fold of an arm, in which few people have most of the outcome",
            remedy="use another scale of the outcome, such as its logarithm, or leave this site out",
        )
    complete, incomplete = (
        protect(part, groups, least, weight=weight) for part in (plain.covariates, plain.incomplete)
    )
    names = np.array([*schema.features, *schema.incomplete_features])
    left_out = names[np.concatenate([complete.left_out, incomplete.left_out])]
    return Standardised(
        np.where(complete.left_out, 0.0, complete.values),
        outcome.values[:, 0],
        np.where(incomplete.left_out, np.nan, incomplete.values),
    ), tuple(left_out.tolist())


def require_shapes(scaling: Scaling, table: Profile, schema: Schema, sites: int) -> None:
    """Refuse a scaling of other columns or of another number of sites."""
    features, incomplete = len(schema.features), len(schema.incomplete_features)
    expected = {
        "outcome_mean": (),
        "outcome_sd": (),
        "mean": (features,),
        "sd": (features,),
        "binary_rate": (features,),
        "correlation": (features, features),
        "incomplete_mean": (incomplete,),
        "incomplete_sd": (incomplete,),
        "site_distances": (sites, min(sites, REFERENCES)),
    }
    found = {name: np.asarray(getattr(scaling, name)) for name in expected}
    right = all(one.shape == expected[name] and one.dtype.kind in "iuf" for name, one in found.items())
    sizes = (scaling.sites, scaling.people, scaling.largest_site)
    right = right and all(isinstance(size, int) for size in sizes) and scaling.sites == sites
    columns = tuple(IncompleteColumn(one.name, one.kind, len(one.features)) for one in schema.incomplete)
    right = right and tuple(scaling.incomplete_columns) == columns
    if not right or min(scaling.people, scaling.largest_site) < table.people:
        raise MessageError(
            "a scaling must be of the columns and sites of the study",
            found="another number of columns, sites or people",
            remedy="run the same version of unpooled everywhere",
        )


def check_family(family: str, asked: AskedFamily, table: Profile) -> None:
    """Refuse a family that the study does not ask for, or that does not allow the site's outcomes."""
    if family not in table.families or asked not in ("auto", family):
        raise MessageError(
            "the family of the outcome must be the study's, and must allow the outcomes of the site",
            found="another family",
            remedy='name the family in the study\'s columns, such as family = "continuous"',
        )


def check_scaling(scaling: Scaling, table: Profile) -> None:
    """Refuse a scaling that is not finite, or under which the site's values are far too large.

    Scaling is a linear change of units, so that a moderate error in it reveals nothing. Very large values
    would make some people dominate, or turn smooth functions of the values into steps.
    """
    sds = (scaling.sd, scaling.incomplete_sd, np.array([scaling.outcome_sd]))
    parts = (scaling.mean, scaling.incomplete_mean, scaling.correlation, scaling.site_distances, *sds)
    finite = all(np.all(np.isfinite(part)) for part in parts) and all(np.all(part > 0.0) for part in sds)
    finite = finite and 0.0 < scaling.weight_scale < np.inf
    if finite and _moderate(scaling, table):
        diagonal = np.diagonal(scaling.correlation)
        symmetric = np.allclose(scaling.correlation, scaling.correlation.T, atol=1e-6)
        if symmetric and np.all(np.abs(scaling.correlation) <= 1.0 + 1e-6) and np.all(diagonal >= 1e-4):
            return
    raise MessageError(
        "a scaling must standardise the columns of the site",
        found="a mean or a standard deviation far from those of the site",
        remedy="run the same version of unpooled everywhere",
    )


def _moderate(scaling: Scaling, table: Profile) -> bool:
    """Whether no value in standard units is far larger than in units of the site's own spread."""
    mean = np.concatenate([scaling.mean, [scaling.outcome_mean], scaling.incomplete_mean])
    sd = np.concatenate([scaling.sd, [scaling.outcome_sd], scaling.incomplete_sd])
    ends, seen = np.array([table.lowest, table.highest]), table.seen > 0
    scaled, own = (
        np.max((np.abs(ends - centre) / unit)[:, seen])
        for centre, unit in ((mean, sd), (table.mean, np.maximum(table.sd, 1e-300)))
    )
    return bool(scaled <= FURTHEST * max(float(own), 1.0))


def standardise(covariates: np.ndarray, scaling: Scaling) -> np.ndarray:
    return (covariates - scaling.mean) / scaling.sd


def standardise_incomplete(incomplete: np.ndarray, scaling: Scaling) -> np.ndarray:
    return (incomplete - scaling.incomplete_mean) / scaling.incomplete_sd
