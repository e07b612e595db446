"""A site: its table, its limits, and the study it has adopted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd

from unpooled.data import (
    Arrays,
    Batches,
    Table,
    by_completeness,
    check,
    check_columns,
    check_together,
    describe,
    described_together,
    frames,
    read_or_batches,
    read_some,
    whole,
)
from unpooled.disclosure.limits import NONE, Limits
from unpooled.disclosure.protection import capped_weights, fewest_people
from unpooled.disclosure.subgroups import answerable
from unpooled.errors import DataError, MessageError, Problems, StudyError
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
from unpooled.site.duplicates import Keeper, in_memory
from unpooled.site.folds import Folds, folds_of
from unpooled.site.profile import Profile, encoded, profile
from unpooled.site.session import Party, Session
from unpooled.site.spool import Spool, append
from unpooled.site.standard_units import Standardised, protected, standardised
from unpooled.study import ColumnRoles, Description, Schema, Study
from unpooled.study.subgroups import listed, members


@dataclass
class Site:
    """A site with its table, in memory or in batches. `adopted` is set once the sites have agreed."""

    name: str
    table: pd.DataFrame | Batches = field(repr=False)
    columns: ColumnRoles
    limits: Limits = NONE
    salt: int | None = field(default=None, repr=False)
    """A secret from which folds and random numbers are drawn; None if all tables are in one process, where
    they depend on the seed alone."""
    adopted: Adoption | None = field(default=None, repr=False)
    party: Party | None = field(default=None, repr=False)
    """The site among the other sites; None if it takes no part in a study with others."""
    session: Session | None = field(default=None, repr=False)
    """The secrets that are shared with the other sites, for one run."""
    duplicates: Keeper | None = field(default=None, repr=False)
    """By what people who are at other sites are found and left out; None if the study does not."""
    incomplete: pd.DataFrame | Batches | None = field(default=None, repr=False)
    """The people who are left out because of missing values, in a study of complete cases."""
    described: Description | None = field(default=None, init=False, repr=False)
    profiled: tuple[Schema, Profile] | None = field(default=None, init=False, repr=False)
    """The last description and profile, for which a table in batches is read as a whole."""

    @property
    def frame(self) -> pd.DataFrame:
        """The whole table; an error if it is in batches and does not fit in memory."""
        return whole(self.table)


def table_digest(site: Site) -> bytes:
    """A digest of the site's table with all rows that does not depend on their order."""
    table = site.table if site.duplicates is None else site.duplicates.table
    total, rows = 0, 0
    for frame in frames(table):
        digests: pd.Series = pd.util.hash_pandas_object(frame, index=False)  # pyright: ignore[reportAttributeAccessIssue]
        total += int(digests.to_numpy().sum(dtype=np.uint64))
        rows += len(frame)
    return hashlib.sha256(f"{rows} {total % 2**64}".encode()).digest()


def description(site: Site) -> Description:
    if site.described is None:
        site.described = described_together([describe(frame, site.columns) for frame in frames(site.table)])
    return site.described


def profile_of(site: Site, schema: Schema) -> Profile:
    """The profile of the site's table by this schema."""
    if site.profiled is None or site.profiled[0] != schema:
        batches = encoded(site.table, site.columns, schema, site=site.name)
        site.profiled = schema, profile(batches, schema)
    return site.profiled[1]


@dataclass(frozen=True)
class Adoption:
    """The study as this site runs it: rows in standard units, and the method's stages."""

    rows: Rows | Spool
    """The rows as the stages see them: with limits, protected so that nobody dominates a sum."""
    own_rows: Rows | None
    """The rows as they are, for effects of people, which do not leave the site; None if in batches."""
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
    without_subgroups: tuple[str, ...] = ()
    """Subgroups that have nobody in `rows`, because sums over few people would follow from theirs."""
    diagnostic_rows: Rows | Spool | None = None
    """The rows with the regressors and folds of the diagnostics."""

    def differs(self, stage: str) -> bool:
        """Whether sites may be asked about different parameters of a stage."""
        return self.settings.differs_by_site or stage.startswith(diagnostic_rounds.PREFIX)


def adopt(site: Site, question: Adopt) -> Adoption:
    """Standardise and protect the rows, and build the method's stages."""
    if site.name not in question.sites:
        raise MessageError(
            "the site must be part of the study",
            found=f"no '{site.name}' among its sites",
            remedy="use the site's name in the consortium",
        )
    method = methods.find(question.method)
    settings = methods.settings_of(method, dict(question.settings))
    context = method.context(settings, question.scaling, question.seed)
    stages = diagnostic_rounds.joined(
        method.stages(settings, context),
        question.scaling,
        diagnostics=question.diagnostics > 0,
        by_site=question.by_site,
    )
    # People of a cluster may be in several batches.
    batched = all(stage.in_batches for stage in stages.values()) and site.columns.cluster is None
    table = site.table if batched else site.frame
    treatment = profile_of(site, question.schema).treatment
    salt = question.sites.index(site.name) if site.salt is None else site.salt
    cluster = None
    if site.columns.cluster is not None:
        (arrays,) = encoded(table, site.columns, question.schema, site=site.name)
        cluster = arrays.cluster
    drawn = folds_of(treatment, method.folds(settings), settings.fold_draws, question, salt, cluster)
    by_fold = any(stage.by_fold for stage in stages.values())
    subgroups = _subgroups_of(site, table, question, drawn if by_fold else drawn.as_one(), treatment)
    batches = _prepared(site, table, question, drawn, subgroups.members, salt)
    if isinstance(table, Batches):
        found = _spooled(batches, question.schema)
    else:
        (found,) = batches
    return Adoption(
        rows=found.rows,
        own_rows=found.own_rows,
        count=len(treatment),
        schema=question.schema,
        scaling=question.scaling,
        method=method,
        settings=settings,
        context=context,
        stages=stages,
        seed=question.seed,
        question=hashlib.sha256(encode_message(question)).hexdigest(),
        people=int(found.people) if np.isfinite(found.people) else None,
        left_out=found.left_out,
        without_subgroups=subgroups.without,
        diagnostic_rows=found.diagnostic_rows,
    )


class Subgroups(NamedTuple):
    """Who belongs to each of the study's subgroups [group, n], and the names of those without answers."""

    members: np.ndarray
    without: tuple[str, ...]


class Prepared(NamedTuple):
    """The rows of `Adoption`, of all people or of a batch of them."""

    rows: Rows | Spool
    own_rows: Rows | None
    diagnostic_rows: Rows | Spool | None
    people: float
    left_out: tuple[str, ...]


def _subgroups_of(
    site: Site, table: pd.DataFrame | Batches, question: Adopt, parts: Folds, treatment: np.ndarray
) -> Subgroups:
    """The study's subgroups. Nobody belongs to one if sums over few people would follow from its sums."""
    named = listed(question.subgroups, question.schema)
    if not named:
        return Subgroups(np.zeros((0, len(treatment)), dtype=bool), ())
    batches = encoded(table, site.columns, question.schema, site=site.name)
    found = np.hstack([members(named, question.schema, arrays.covariates) for arrays in batches])
    kept = answerable(found, parts._replace(diagnostic=None).groups(treatment), site.limits.cell)
    without = tuple(one.name for one, answered in zip(named, kept, strict=True) if not answered)
    return Subgroups(found & kept[:, None], without)


def _prepared(
    site: Site,
    table: pd.DataFrame | Batches,
    question: Adopt,
    everybody: Folds,
    subgroups: np.ndarray,
    salt: int,
) -> Iterator[Prepared]:
    """The rows batch by batch. With limits, each batch is protected by its own people alone."""
    limits, size = site.limits, max(table.sizes) if isinstance(table, Batches) else None
    start = 0
    for arrays in encoded(table, site.columns, question.schema, site=site.name):
        people = slice(start, start + len(arrays.treatment))
        fold, mine, start = everybody.of(people), subgroups[:, people], people.stop
        plain = standardised(arrays, question.scaling)
        groups = fold.groups(arrays.treatment) if limits.cell else np.zeros((0, 0))
        weight = None
        if arrays.weight is not None:
            weight = capped_weights(question.scaling.weight_scale * arrays.weight, groups, limits.cell)
        shielded, left_out = protected(plain, groups, limits.cell, question.schema, weight)

        def rows(
            values: Standardised,
            fold: Folds = fold,
            arrays: Arrays = arrays,
            weight: np.ndarray | None = weight,
            mine: np.ndarray = mine,
        ) -> Rows:
            return make_rows(
                values.covariates,
                arrays.treatment,
                values.outcome,
                fold=fold.drawn[0],
                site=question.sites.index(site.name),
                incomplete=values.incomplete,
                salt=salt % HALF**2,
                least=limits.cell,
                more_folds=fold.drawn[1:],
                groups=mine,
                per_feature=1.0 / limits.share,
                size=size,
                weight=weight,
                cluster=arrays.cluster,
            )

        own = rows(plain)
        sent = own if limits.cell == 0 else rows(shielded)
        every = np.column_stack([shielded.covariates, shielded.outcome, shielded.incomplete])
        yield Prepared(
            sent,
            own,
            None if fold.diagnostic is None else with_regressors(sent, fold.diagnostic),
            fewest_people(every, groups, weight) if limits.cell else np.inf,
            left_out,
        )


def _spooled(batches: Iterator[Prepared], schema: Schema) -> Prepared:
    """The batches in temporary files. A column that one of them must leave out is left out everywhere."""
    rows, diagnostic, people, left_out = Spool(), Spool(), np.inf, set[str]()
    for batch in batches:
        assert isinstance(batch.rows, Rows)
        append(rows, batch.rows)
        if isinstance(batch.diagnostic_rows, Rows):
            append(diagnostic, batch.diagnostic_rows)
        people, left_out = min(people, batch.people), left_out | set(batch.left_out)
    places = tuple(place for place, name in enumerate(schema.features) if name in left_out)
    rows.left_out = diagnostic.left_out = places
    names = tuple(schema.features[place] for place in places)
    return Prepared(rows, None, diagnostic if diagnostic.count else None, people, names)


def open_site(name: str, source: Table, study: Study, limits: Limits) -> Site:
    """Read and check a site's table, before any study is adopted."""
    require_supported_columns(study)
    everybody = _read(source, study.columns, name)
    for frame in frames(everybody):
        check(frame, study.columns, site=name)
    table, incomplete = by_completeness(everybody, study.columns)
    parts = [describe(frame, study.columns) for frame in frames(table)]
    if not sum(part.rows for part in parts):
        raise DataError(
            f"site '{name}' must have people without missing values",
            found="a gap in an incomplete column of everybody",
            remedy='leave the site or the column out, or set missing = "indicator" under [columns]',
        )
    described = described_together(parts)
    check_together(described, study.columns, site=name)
    keeper, party = in_memory(name, study, table), Party(name, study.hash)
    site = Site(name, table, study.columns, limits, party=party, duplicates=keeper, incomplete=incomplete)
    site.described = described
    return site


def _read(source: Table, columns: ColumnRoles, name: str) -> pd.DataFrame | Batches:
    """The table; if columns are missing, the error tells what is wrong with the others, too."""
    problems = Problems()
    try:
        return read_or_batches(source, columns, site=name)
    except DataError as error:
        problems.found += error.problems
    absent = {one.absent for one in problems.found if isinstance(one, DataError)}
    with problems.collected():
        others = None if "" in absent else read_some(source, columns, absent, site=name)
        if others is not None:
            check_columns(others, columns, site=name)
    problems.raise_all()
    raise AssertionError("a table without its columns has a problem")


def require_supported_columns(study: Study) -> None:
    """Refuse incomplete confounders, weights or clusters that the method would ignore silently."""
    method, columns, problems = find(study.method.name), study.columns, Problems()
    with problems.collected():
        if columns.modelled and not method.takes_incomplete:
            raise StudyError(
                f"the method '{study.method.name}' supports complete columns only",
                found=f"incomplete: {', '.join(columns.modelled)}",
                remedy='remove these columns, impute them first, set missing = "complete cases" or '
                '"indicator" under [columns], or use the method causal_fi',
            )
    with problems.collected():
        if columns.weight is not None and not method.takes_weights:
            raise StudyError(
                f"the method '{study.method.name}' does not support sampling weights",
                found=f"weight = '{columns.weight}'",
                remedy="use fedci, causal_rff, aipw or meta_analysis, or leave out the weights",
            )
    with problems.collected():
        if columns.cluster is not None and not method.takes_clusters:
            raise StudyError(
                f"the method '{study.method.name}' takes people as independent: its model has no term for "
                "what people of a cluster share, without which its posterior would be too narrow",
                found=f"cluster = '{columns.cluster}'",
                remedy="use aipw or meta_analysis, whose errors are by cluster; or leave out `cluster`, and "
                "know that intervals are too narrow if people of a cluster are alike",
            )
    problems.raise_all()
