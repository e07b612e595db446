"""Missing values: shares, patterns, and tests of missingness completely at random (MCAR)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from unpooled.coordinator.agreement import Agreement, reach_agreement
from unpooled.coordinator.rounds import run
from unpooled.data import Table
from unpooled.diagnostics.duplicates import leave_out_here
from unpooled.disclosure.limits import NONE, Limits
from unpooled.disclosure.withheld import complemented, few
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import DataError
from unpooled.maths.little import McarTest, Stratified, Vote, little, stratified, vote
from unpooled.maths.missing_patterns import Pattern, merged
from unpooled.optimise.procedure import Procedure, ask_each
from unpooled.protocol.engine import Engine
from unpooled.protocol.records import Scaling
from unpooled.protocol.table_messages import MissingPatterns
from unpooled.study import ALL_SITES, Study

LEVEL = 0.05
ADVICE = (
    "A small p-value is evidence that values are not missing completely at random. A large one proves "
    "nothing. Whether values are missing at random, given the observed data, cannot be tested; it is assumed."
)


@dataclass(frozen=True)
class Missingness:
    """Shares missing by site and column, patterns, and three versions of Little's test."""

    shares: pd.DataFrame
    patterns: pd.DataFrame
    pooled: McarTest | None
    stratified: Stratified
    vote: Vote
    withheld: dict[str, dict[str, int]]
    unavailable_reason: str = ""
    """Why the pooled test is not available."""


def missingness(
    study: Study, sites: Mapping[str, Table] | None = None, *, limits: Limits = NONE
) -> Missingness:
    """Summarise missing values with one question to each site, for any method; no row leaves its site."""
    columns = study.columns.model_copy(update={"missing": "model", "weight": None, "cluster": None})
    method = study.method.model_copy(update={"name": "causal_fi"})
    allowing = study.model_copy(update={"method": method, "columns": columns})
    engine = InProcess(open_sites(allowing, sites, limits))
    leave_out_here(study, engine)
    return of_agreed(run(reach_agreement(allowing), engine), engine)


def of_agreed(agreement: Agreement, engine: Engine) -> Missingness:
    """The same for sites that have already agreed."""
    gathered = run(gather_patterns(agreement), engine)
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


def _shares(gathered: GatheredPatterns) -> pd.DataFrame:
    """Share missing of each incomplete column, by site and over all sites."""
    scaling, schema = gathered.agreement.scaling, gathered.agreement.schema
    counts = np.array(scaling.counts)
    first = np.cumsum([0, *[len(column.features) for column in schema.incomplete]])[:-1]
    seen = np.asarray(scaling.known.observed)[:, first]
    shares = 1.0 - np.vstack([seen / counts[:, None], seen.sum(axis=0) / counts.sum()])
    names = [column.name for column in schema.incomplete]
    return pd.DataFrame(shares, index=[*gathered.agreement.descriptions, ALL_SITES], columns=names)


def _patterns(gathered: GatheredPatterns, every: tuple[Pattern, ...]) -> pd.DataFrame:
    """Patterns of missing values with the number of people, the most frequent first."""
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


class GatheredPatterns(NamedTuple):
    """By site: the patterns that it sent, and how many patterns and rows it withheld."""

    agreement: Agreement
    patterns: dict[str, tuple[Pattern, ...]]
    withheld: dict[str, dict[str, int]]


def gather_patterns(agreement: Agreement) -> Procedure[GatheredPatterns]:
    """Ask every site for its patterns, in one round after the agreement."""
    scaling, arms = agreement.scaling, agreement.descriptions.values()
    treated = sum(one.arms.get(agreement.schema.treated, 0) for one in arms) / sum(scaling.counts)
    centre = [*scaling.mean, *scaling.incomplete_mean, treated, scaling.outcome_mean]
    replies = yield from ask_each(MissingPatterns(agreement.schema, np.array(centre)))
    patterns = {site: reply.patterns for site, reply in replies.items()}
    withheld = {
        site: {"patterns": reply.withheld_patterns, "rows": reply.withheld_rows}
        for site, reply in replies.items()
    }
    return GatheredPatterns(agreement, patterns, withheld)


def missing_shares(scaling: Scaling, sites: Sequence[str], hidden: Mapping[str, str]) -> pd.DataFrame | None:
    """Shares missing, from the agreed scaling; NaN if withheld, None if no column is incomplete."""
    columns = scaling.incomplete_columns
    if not columns:
        return None
    counts = np.array(scaling.counts)
    first = np.cumsum([0, *[column.width for column in columns]])[:-1]
    seen = np.asarray(scaling.known.observed)[:, first]
    missing = counts[:, None] - seen
    groups = np.stack([missing, seen])
    totals = groups.sum(axis=1)
    may_be_shown = np.array([site not in hidden for site in sites])[:, None]
    shown = complemented(~few(groups).any(axis=0) & may_be_shown, counts.tolist(), groups, totals)
    by_site = np.where(shown, missing / counts[:, None], np.nan)
    everybody = np.where(few(totals).any(axis=0), np.nan, totals[0] / counts.sum())
    shares = np.vstack([by_site, everybody])
    names = [column.name for column in columns]
    return pd.DataFrame(shares, index=[*sites, ALL_SITES], columns=names)
