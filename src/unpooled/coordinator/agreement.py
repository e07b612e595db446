"""Before any fitting: the sites agree on a schema and on the numbers that standardise it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unpooled.algorithms.exchange import Procedure
from unpooled.errors import DataError
from unpooled.protocol.messages import Describe, Message, Summarise, Tree
from unpooled.study import Description, Schema, Study, agree

FLAG_SCALE = 0.25
"""Least number that a 0/1 column is divided by: the sd of a flag that 7 % of people carry."""


@dataclass(frozen=True)
class Agreement:
    """What all sites now know of each other."""

    schema: Schema
    scaling: Tree
    descriptions: dict[str, Description]


def reach_agreement(study: Study) -> Procedure[Agreement]:
    """Three rounds: describe; sums; moments about the common mean."""
    replies = yield Describe(study.columns.model_dump(mode="json"))
    descriptions = {site: Description(**reply["description"]) for site, reply in replies.items()}
    schema = agree(descriptions, study.columns)
    sent = schema.model_dump(mode="json")
    first = yield from _sums(Summarise(sent))
    _refuse_identical(first, tuple(descriptions))
    centre = first["total"].sum(axis=0) / first["count"].sum()
    second = yield from _sums(Summarise(sent, centre))
    scaling = _scaling(schema, centre, second)
    _refuse_degenerate(schema, scaling, study)
    return Agreement(schema, scaling, descriptions)


def _sums(question: Message) -> Procedure[Tree]:
    replies = yield question
    parts = [reply["sums"] for reply in replies.values()]
    return {key: np.stack([part[key] for part in parts]) for key in parts[0]}


def _scaling(schema: Schema, centre: np.ndarray, sums: Tree) -> Tree:
    total = sums["count"].sum()
    sd = np.sqrt(sums["power2"].sum(axis=0) / total)
    # Numerically constant counts as constant; it is refused by name below.
    constant = sd <= 1e-10 * np.maximum(np.abs(centre), 1e-300)
    binary = np.array(schema.binary, dtype=bool)
    safe = np.where(constant, 1.0, sd)
    # A rare flag divided by its sd would put its few people far outside everybody else.
    safe[:-1] = np.where(binary & ~constant[:-1], np.maximum(safe[:-1], FLAG_SCALE), safe[:-1])
    covariance = sums["cross"].sum(axis=0) / total
    return {
        "mean": centre[:-1],
        "sd": safe[:-1],
        "constant": constant,
        "outcome_mean": float(centre[-1]),
        "outcome_sd": float(safe[-1]),
        "correlation": covariance / np.outer(safe[:-1], safe[:-1]),
        "binary_rate": np.where(binary, centre[:-1], np.nan),
        "site_moments": _site_moments(sums, safe, binary),
        "counts": [int(count) for count in sums["count"]],
    }


def _site_moments(sums: Tree, sd: np.ndarray, binary: np.ndarray) -> np.ndarray:
    """x̃: mean, sd, skewness and excess kurtosis of each covariate at each site (binary: mean and sd only)."""
    count = sums["count"][:, None]
    m1, m2, m3, m4 = (sums[f"power{k}"][:, :-1] / count / sd[:-1] ** k for k in (1, 2, 3, 4))
    variance = np.maximum(m2 - m1**2, 0.0)
    spread = np.where(variance > 1e-12, np.sqrt(variance), 1.0)
    skewness = (m3 - 3 * m1 * m2 + 2 * m1**3) / spread**3
    kurtosis = (m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4) / spread**4 - 3.0
    shape = [np.clip(part[:, ~binary], -5.0, 5.0) for part in (skewness, kurtosis)]
    return np.concatenate([m1, np.sqrt(variance), *shape], axis=1)


def _refuse_identical(sums: Tree, sites: tuple[str, ...]) -> None:
    for i in range(len(sites)):
        for j in range(i + 1, len(sites)):
            same_count = sums["count"][i] == sums["count"][j]
            if same_count and np.array_equal(sums["total"][i], sums["total"][j]):
                raise DataError(
                    "every site must hold its own people",
                    found=f"sites '{sites[i]}' and '{sites[j]}' report the same rows and the same sums",
                    remedy="check that one table was not given twice",
                )


def _refuse_degenerate(schema: Schema, scaling: Tree, study: Study) -> None:
    names = [*schema.features, study.columns.outcome]
    constant = [name for name, flag in zip(names, scaling["constant"], strict=True) if flag]
    if constant:
        raise DataError(
            "every column must vary over the sites",
            found=f"constant: {', '.join(constant)}",
            remedy="leave the column out of the study",
        )
    spread = np.sqrt(np.diagonal(scaling["correlation"]))
    correlation = np.abs(scaling["correlation"]) / np.outer(spread, spread) - np.eye(len(schema.features))
    first, second = np.unravel_index(np.argmax(correlation), correlation.shape)
    if correlation[first, second] > 1.0 - 1e-9:
        raise DataError(
            "no column may repeat another",
            found=f"'{schema.features[first]}' and '{schema.features[second]}' say the same at every site",
            remedy="leave one of the two out of the study",
        )
