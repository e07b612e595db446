"""Agreement before the fit: the sites agree on a schema and on how its columns are standardised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from unpooled.coordinator.left_out import LeftOutPeople, people_left_out
from unpooled.coordinator.one_arm import one_arm_sites, refuse_one_arm
from unpooled.errors import DataError
from unpooled.methods import method as methods
from unpooled.optimise.procedure import Procedure, ask_each
from unpooled.protocol.messages import Question
from unpooled.protocol.records import (
    REFERENCES,
    ROUNDED,
    Arrays,
    IncompleteColumn,
    Limits,
    Scaling,
    SiteSummaries,
)
from unpooled.protocol.table_messages import Centre, Describe, Summarise, SumObserved
from unpooled.study import Description, Schema, Study, agree, with_indicators
from unpooled.study.family import Family, resolve
from unpooled.study.subgroups import listed

SMALLEST = 1e-70
"""Minimum sd of a column, so that its fourth power does not underflow."""
SIMILAR = 1e-6
"""Tables whose sums of squares differ by a larger share are not compared further."""
REPEATED = 1.0 - 1e-9
"""Correlation from which on a column repeats another."""
EQUAL = 1e-9
"""Largest difference of equal moments, as a share of their size."""
FLAG_SCALE = 0.25
"""Minimum scale of a 0/1 column: the sd of a column with 7 % ones."""


@dataclass(frozen=True)
class Agreement:
    """The agreed schema and scaling, the sites' descriptions of their tables, and their limits."""

    schema: Schema
    scaling: Scaling
    descriptions: dict[str, Description]
    limits: dict[str, Limits]
    left_out: LeftOutPeople | None = None
    """The people without whom the study is done, if it is one of complete cases."""
    effective: float | None = None
    """The effective sample size (Σw)²/Σw² of sampling weights, if the study has them."""


class Incomplete(NamedTuple):
    """Moments of the incomplete covariates, and the number of observed values of each at each site."""

    mean: np.ndarray
    sd: np.ndarray
    observed: np.ndarray


def reach_agreement(study: Study) -> Procedure[Agreement]:
    """Three rounds: descriptions, sums, and moments about the common mean; one more if gaps are filled, or
    if people with gaps are left out."""
    replies = yield from ask_each(Describe(study.columns))
    descriptions = {site: reply.description for site, reply in replies.items()}
    schema = agree(descriptions, study.columns)
    one_arm = one_arm_sites(descriptions, schema)
    refuse_one_arm(study, one_arm)
    if study.columns.missing == "indicator":
        schema = yield from _filled(schema)
    listed(study.subgroups, schema)  # an error if the columns do not allow them
    first = yield from _sums(Summarise(schema, by_site=study.by_site))
    centre = first["total"].sum(axis=0) / first["count"].sum()
    seen = first["seen"].sum(axis=0)
    about = first["seen_total"].sum(axis=0) / np.maximum(seen, 1)
    compared = methods.compares_sites(study)
    second = yield from _sums(Summarise(schema, Centre(centre, about), compared))
    _refuse_identical(second, tuple(descriptions))
    schema, kept = _without_repeated_flags(schema, second)
    centre, second = centre[kept], _selected(second, kept)
    _refuse_constant(schema, centre, second, study)
    spread = np.sqrt(second["seen_squares"].sum(axis=0) / np.maximum(seen, 1))
    _refuse(np.array(schema.incomplete_features)[_flat(spread, about)].tolist())
    sites = tuple(descriptions)
    unknown = np.full((len(sites), len(seen)), np.nan)
    incomplete = Incomplete(about, spread, first.get("present", unknown))
    family = _family(descriptions, centre, second, study)
    scaling = _scaling(schema, centre, second, family, sites, incomplete, one_arm)
    _refuse_repeated(schema, second, study)
    limits = {site: reply.limits for site, reply in replies.items()}
    effective = None
    if "weight" in first:
        total, squares = first["weight"].sum(axis=0)
        scaling = replace(scaling, weight_scale=float(total / squares))
        effective = float(total**2 / squares)
    left_out = yield from people_left_out(study, schema, scaling, descriptions)
    return Agreement(schema, scaling, descriptions, limits, left_out, effective)


def _filled(schema: Schema) -> Procedure[Schema]:
    """The schema with what is put in place of missing values, and 0/1 columns of where they are."""
    replies = yield from ask_each(SumObserved(schema))
    people = sum(reply.people for reply in replies.values())
    seen, total = (
        np.sum([reply.sums[name] for reply in replies.values()], axis=0) for name in ("seen", "total")
    )
    seen, found, start = np.rint(seen).astype(int), {}, 0
    for column in schema.incomplete:
        # Ten digits, so that the rounding of masks and of the sites' order does not matter.
        mean = float(f"{total[start] / max(seen[start], 1):.10g}") if column.features else 0.0
        found[column.name] = (int(seen[start]) if column.features else people, mean)
        start += len(column.features)
    return with_indicators(schema, found, people)


def _without_repeated_flags(schema: Schema, sums: Arrays) -> tuple[Schema, np.ndarray]:
    """The schema without 0/1 columns of missing values that repeat another column, and the places of the
    columns that stay, and of the outcome. Values of several columns are often missing together."""
    correlation = _correlation(sums)
    owners = [column for column in schema.covariates for _ in column.features]
    repeated = {
        place
        for place, owner in enumerate(owners)
        if owner.flags is not None and np.any(correlation[place, :place] > REPEATED)
    }
    names = {owners[place].name for place in repeated}
    kept = np.array([place for place in range(len(owners) + 1) if place not in repeated])
    columns = tuple(column for column in schema.covariates if column.name not in names)
    return schema.model_copy(update={"covariates": columns}), kept


def _selected(sums: Arrays, kept: np.ndarray) -> Arrays:
    """The sums of some of the columns; the last is the outcome."""
    own, features = dict(sums), kept[:-1]
    own |= {"sum": sums["sum"][:, kept], "cross": sums["cross"][:, kept][:, :, kept]}
    return own | {name: sums[name][..., features] for name in ("mean", "spread", "shape") if name in sums}


def _family(descriptions: dict[str, Description], centre: np.ndarray, sums: Arrays, study: Study) -> Family:
    """The outcome's family, from the kinds at the sites and the mean and variance over all of them."""
    kinds: list[Family] = [one.outcome for one in descriptions.values()]
    variance = sums["cross"].sum(axis=0)[-1, -1] / sums["count"].sum()
    return resolve(study.columns.family, kinds, float(centre[-1]), float(variance))


def _sums(question: Question) -> Procedure[Arrays]:
    replies = yield from ask_each(question)
    parts = [{"count": reply.people, **reply.sums, **reply.by_site} for reply in replies.values()]
    return {key: np.stack([part[key] for part in parts]) for key in parts[0]}


def _scaling(
    schema: Schema,
    centre: np.ndarray,
    sums: Arrays,
    family: Family,
    sites: tuple[str, ...],
    incomplete: Incomplete,
    one_arm: dict[str, str],
) -> Scaling:
    total = sums["count"].sum()
    sd = np.sqrt(np.diagonal(sums["cross"].sum(axis=0)) / total)
    binary = np.array(schema.binary, dtype=bool)
    # Dividing a rare 0/1 column by its small sd would turn its few ones into outliers.
    safe = np.append(np.where(binary, np.maximum(sd[:-1], FLAG_SCALE), sd[:-1]), sd[-1])
    covariance = sums["cross"].sum(axis=0)[:-1, :-1] / total
    counts, moments = tuple(int(count) for count in sums["count"]), _site_moments(sums, safe, binary)
    return Scaling(
        mean=centre[:-1],
        sd=safe[:-1],
        outcome_mean=float(centre[-1]),
        outcome_sd=float(safe[-1]),
        correlation=covariance / np.outer(safe[:-1], safe[:-1]),
        binary_rate=np.where(binary, centre[:-1], np.nan),
        family=family,
        incomplete_mean=incomplete.mean,
        incomplete_sd=incomplete.sd,
        incomplete_columns=tuple(
            IncompleteColumn(column.name, column.kind, len(column.features)) for column in schema.incomplete
        ),
        sites=len(sites),
        people=sum(counts),
        largest_site=-(-max(counts) // ROUNDED) * ROUNDED,
        site_distances=_distances(moments),
        by_site=SiteSummaries(sites, counts, incomplete.observed, one_arm, moments),
    )


def _site_moments(sums: Arrays, sd: np.ndarray, binary: np.ndarray) -> np.ndarray:
    """x̃: mean, sd, skewness and excess kurtosis of each covariate by site (0/1 columns: mean and sd only).

    Without columns if no site tells its moments.
    """
    if "mean" not in sums:
        return np.zeros((len(sums["count"]), 1))
    mean, spread = sums["mean"] / sd[:-1], sums["spread"] / sd[:-1]
    return np.concatenate([mean, spread, *np.swapaxes(sums["shape"][:, :, ~binary], 0, 1)], axis=1)


def _distances(moments: np.ndarray) -> np.ndarray:
    """Mean squared differences of the sites' moments from those of the reference sites, [site, reference].

    If sites are few, all are references. Otherwise each reference is the site that is furthest from those
    chosen before.
    """
    if len(moments) <= REFERENCES:
        return np.stack([_distance(moments, site) for site in range(len(moments))], axis=1)
    found = [_distance(moments, 0)]
    while len(found) < REFERENCES:
        found.append(_distance(moments, int(np.argmax(np.min(found, axis=0)))))
    return np.stack(found, axis=1)


def _distance(moments: np.ndarray, site: int) -> np.ndarray:
    return np.mean((moments - moments[site]) ** 2, axis=1)


def _refuse_identical(sums: Arrays, sites: tuple[str, ...]) -> None:
    """Refuse two sites whose tables agree in the number of rows and in every moment.

    Where sums are masked, sites have no moments of their own here; they compare tables by themselves.
    """
    for i, j in _similar_pairs(np.trace(sums["cross"], axis1=1, axis2=2)):
        if sums["count"][i] == sums["count"][j] and _same_moments(sums, i, j):
            raise DataError(
                "every site must hold its own people",
                found=f"sites '{sites[i]}' and '{sites[j]}' report equal row counts and equal moments",
                remedy="check that the same table was not given twice",
            )


def _similar_pairs(sizes: np.ndarray) -> Iterator[tuple[int, int]]:
    """Pairs of places whose numbers are nearly the same; few if the numbers differ, however many there are.

    >>> list(_similar_pairs(np.array([2.0, 5.0, 2.0 + 1e-9, 4.0])))
    [(0, 2)]
    """
    order = np.argsort(sizes, kind="stable")
    order = order[sizes[order] > 0.0]
    ends = np.searchsorted(sizes[order], sizes[order] * (1.0 + SIMILAR), side="right")
    for place, end in enumerate(ends):
        for other in range(place + 1, end):
            first, second = sorted((int(order[place]), int(order[other])))
            yield first, second


def _same_moments(sums: Arrays, i: int, j: int) -> bool:
    """Whether two sites' moments are equal up to the order in which their rows were added up.

    Sums of deviations may cancel, so that their rounding errors are compared with the deviations' own size.
    """
    size = np.sqrt(np.diagonal(sums["cross"][i]))
    largest = {
        "sum": EQUAL * size * np.sqrt(sums["count"][i]),
        "cross": EQUAL * np.outer(size, size),
    }
    return all(bool(np.all(np.abs(sums[name][i] - sums[name][j]) <= gap)) for name, gap in largest.items())


def _refuse_constant(schema: Schema, centre: np.ndarray, sums: Arrays, study: Study) -> None:
    sd = np.sqrt(np.diagonal(sums["cross"].sum(axis=0)) / sums["count"].sum())
    flat = _flat(sd, centre)
    constant = [name for name, flag in zip(schema.features, flat[:-1], strict=True) if flag]
    constant += [column.name for column in schema.covariates if not column.features]
    _refuse(constant)
    if flat[-1]:
        raise DataError(
            f"the outcome '{study.columns.outcome}' must vary over the sites",
            found="the same value for everybody",
            remedy="choose another outcome, or check how the column was read",
        )


def _flat(sd: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Whether a column is constant up to rounding, or too small for its higher moments to be computed."""
    return sd <= np.maximum(1e-10 * np.abs(centre), SMALLEST)


def _refuse(constant: list[str]) -> None:
    if constant:
        raise DataError(
            "every column must vary over the sites",
            found=f"constant: {', '.join(constant)}",
            remedy="leave the column out of the study",
        )


def _correlation(sums: Arrays) -> np.ndarray:
    """Absolute correlations over all sites, without those of columns with themselves."""
    cross = sums["cross"].sum(axis=0)
    spread = np.sqrt(np.diagonal(cross))
    return np.abs(cross) / np.maximum(np.outer(spread, spread), SMALLEST) - np.eye(len(spread))


def _refuse_repeated(schema: Schema, sums: Arrays, study: Study) -> None:
    correlation = _correlation(sums)
    first, second = sorted(np.unravel_index(np.argmax(correlation), correlation.shape))
    if correlation[first, second] > REPEATED:
        names = [*schema.features, f"{study.columns.outcome} (the outcome)"]
        raise DataError(
            "no column may repeat another",
            found=f"'{names[first]}' and '{names[second]}' are perfectly correlated over all sites",
            remedy="leave one of the two out of the study",
        )
