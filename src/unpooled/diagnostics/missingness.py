"""Where values are missing, and whether that could be by chance alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from unpooled.coordinator.agreement import Agreement, reach_agreement
from unpooled.coordinator.gaps import Gathered, gather_gaps
from unpooled.coordinator.rounds import run
from unpooled.data import Table
from unpooled.disclosure.limits import NONE, Limits
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import DataError
from unpooled.maths.little import McarTest, Stratified, Vote, little, stratified, vote
from unpooled.maths.missing_patterns import Pattern, merged
from unpooled.protocol.engine import Engine
from unpooled.study import ALL_SITES, Study

LEVEL = 0.05
ADVICE = (
    "A small p says that values are not missing completely at random. A large one proves nothing, and no "
    "test can tell whether they are missing at random, that is by what is seen alone: that is assumed."
)


@dataclass(frozen=True)
class Missingness:
    """Shares missing by site and column, patterns, and Little's test in three versions (None: impossible)."""

    shares: pd.DataFrame
    patterns: pd.DataFrame
    pooled: McarTest | None
    stratified: Stratified
    vote: Vote
    withheld: dict[str, dict[str, int]]
    unavailable_reason: str = ""
    """Why the pooled test is not possible."""


def missingness(
    study: Study, sites: Mapping[str, Table] | None = None, *, limits: Limits = NONE
) -> Missingness:
    """Ask every site once; no row leaves it. Whatever the study's method, gaps may be looked at."""
    taking = study.model_copy(update={"method": study.method.model_copy(update={"name": "causal_fi"})})
    engine = InProcess(open_sites(taking, sites, limits))
    return of_agreed(run(reach_agreement(study), engine), engine)


def of_agreed(agreement: Agreement, engine: Engine) -> Missingness:
    """The same where the sites have agreed already."""
    gathered = run(gather_gaps(agreement), engine)
    every = merged(gathered.patterns.values())
    pooled, why = None, ""
    try:
        pooled = little(every)
    except DataError as error:
        why = f"{error.expected}; found {error.found}"
    return Missingness(
        _shares(gathered),
        _patterns(gathered, every),
        pooled,
        stratified(gathered.patterns),
        vote(gathered.patterns, LEVEL),
        {site: held for site, held in gathered.withheld.items() if held["rows"]},
        why,
    )


def _shares(gathered: Gathered) -> pd.DataFrame:
    """Share missing of each incomplete column: at each site, and over all."""
    scaling, schema = gathered.agreement.scaling, gathered.agreement.schema
    counts = np.array(scaling.counts)
    first = np.cumsum([0, *[len(column.features) for column in schema.incomplete]])[:-1]
    seen = np.asarray(scaling.observed)[:, first]
    shares = 1.0 - np.vstack([seen / counts[:, None], seen.sum(axis=0) / counts.sum()])
    names = [column.name for column in schema.incomplete]
    return pd.DataFrame(shares, index=[*gathered.agreement.descriptions, ALL_SITES], columns=names)


def _patterns(gathered: Gathered, every: tuple[Pattern, ...]) -> pd.DataFrame:
    """What is missing together, and how many people that is, the most frequent first."""
    schema = gathered.agreement.schema
    start = len(schema.features)
    names = np.array([column.name for column in schema.incomplete for _ in column.features], dtype=object)
    rows = [
        {
            "missing": ", ".join(dict.fromkeys(names[~one.observed[start : start + len(names)]])),
            "rows": one.count,
        }
        for one in every
    ]
    found = pd.DataFrame(rows, columns=["missing", "rows"])
    found["missing"] = found["missing"].replace("", "nothing")
    return found.sort_values("rows", ascending=False, ignore_index=True)
