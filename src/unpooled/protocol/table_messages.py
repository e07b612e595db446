"""Questions about the tables before a study is adopted: columns, summaries, missing values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from unpooled.maths.missing_patterns import Pattern
from unpooled.protocol.messages import Question, Reply
from unpooled.protocol.records import Arrays, Limits, Record
from unpooled.study import ColumnRoles, Description, Schema, Study


@dataclass(frozen=True)
class Described(Reply):
    """Reveals: number of rows, rows per arm, kinds of columns and outcome, category levels, the limits."""

    reveals: ClassVar[str] = (
        "number of rows, rows per arm, kinds of the columns and of the outcome, category levels; the site's "
        "limits"
    )
    description: Description
    limits: Limits = Limits(0, 0, float("inf"))


@dataclass(frozen=True)
class Summary(Reply):
    """Reveals: number of rows; sums and products of the columns; if asked for, moments at this site."""

    reveals: ClassVar[str] = (
        "number of rows; for sums over sites: mean, sd and correlations of the columns, of incomplete "
        "columns also the number of values present, of sampling weights their sum and that of their squares; "
        "at this site, if effects by site are part of the study: "
        "the number of values present in incomplete columns; if the method compares sites: mean, sd, and "
        "skewness and kurtosis to one decimal, of each covariate"
    )
    totals: ClassVar[tuple[str, ...]] = ("sums",)
    people: int
    sums: Arrays
    by_site: Arrays = field(default_factory=dict)


@dataclass(frozen=True)
class Patterns(Reply):
    """Reveals: number of people, means and covariances for each sufficiently common missingness pattern."""

    reveals: ClassVar[str] = (
        "for every pattern of missing values that enough people share: their number, and means and "
        "covariances of the columns; how many patterns and people were left out"
    )
    patterns: tuple[Pattern, ...]
    withheld_patterns: int
    withheld_rows: int


@dataclass(frozen=True)
class Observed(Reply):
    """Reveals: for sums over sites, the number and the sum of the values that are present."""

    reveals: ClassVar[str] = (
        "number of rows; for sums over sites: of each incomplete column, the number of values present and "
        "their sum"
    )
    totals: ClassVar[tuple[str, ...]] = ("sums",)
    people: int
    sums: Arrays


@dataclass(frozen=True)
class LeftOutForGaps(Reply):
    """Reveals: how many people were left out, and how they differ from the others on average."""

    reveals: ClassVar[str] = (
        "how many people of each arm are left out for missing values, unless that is a small number; for "
        "sums over sites: of these people, sums of the complete covariates, the treatment and the outcome"
    )
    totals: ClassVar[tuple[str, ...]] = ("sums",)
    arms: dict[str, int | None]
    """By level of the treatment; None for a number below the site's limit."""
    sums: Arrays


@dataclass(frozen=True)
class Describe(Question):
    """What does your table look like, read by these column roles?"""

    reply: ClassVar[type[Reply]] = Described
    columns: ColumnRoles
    repeated_on_resume: ClassVar[bool] = True

    def mismatch(self, study: Study) -> str | None:
        return None if self.columns == study.columns else "a question about other columns"


@dataclass(frozen=True)
class Centre(Record):
    """Means about which moments are taken: of covariates and outcome, and of the incomplete covariates."""

    complete: np.ndarray
    incomplete: np.ndarray


@dataclass(frozen=True)
class Summarise(Question):
    """Sums of the encoded columns, about this centre (None: about zero)."""

    reply: ClassVar[type[Reply]] = Summary
    schema: Schema
    centre: Centre | None = None
    by_site: bool = False
    """Without a centre: whether the site tells how many values are present in incomplete columns. With one:
    whether it tells the moments of its covariates, by which a method compares sites."""
    repeated_on_resume: ClassVar[bool] = True

    def mismatch(self, study: Study) -> str | None:
        return None if self.schema.is_of(study.columns) else "sums of other columns"


@dataclass(frozen=True)
class MissingPatterns(Question):
    """Which values are missing together, and the moments of the columns among the people of each pattern."""

    reply: ClassVar[type[Reply]] = Patterns
    schema: Schema
    centre: np.ndarray

    @classmethod
    def concerns(cls, study: Study) -> bool:
        return bool(study.columns.modelled)

    def mismatch(self, study: Study) -> str | None:
        if not self.concerns(study):
            return "a question about missing values in a study without incomplete columns"
        return None if self.schema.is_of(study.columns) else "missing values of other columns"


@dataclass(frozen=True)
class SumObserved(Question):
    """The number and the sum of the values present in incomplete columns, by which gaps are filled."""

    reply: ClassVar[type[Reply]] = Observed
    schema: Schema
    repeated_on_resume: ClassVar[bool] = True

    @classmethod
    def concerns(cls, study: Study) -> bool:
        return study.columns.missing == "indicator"

    def mismatch(self, study: Study) -> str | None:
        if not self.concerns(study):
            return "a question about values that fill gaps in a study that fills none"
        return None if self.schema.is_of(study.columns) else "sums of other columns"


@dataclass(frozen=True)
class CompareLeftOut(Question):
    """How do the people who are left out for missing values differ from these means of the others?"""

    reply: ClassVar[type[Reply]] = LeftOutForGaps
    schema: Schema
    centre: np.ndarray
    """Of the complete covariates, the treatment and the outcome."""

    @classmethod
    def concerns(cls, study: Study) -> bool:
        return study.columns.missing == "complete cases"

    def mismatch(self, study: Study) -> str | None:
        if not self.concerns(study):
            return "a question about people who are left out, in a study that leaves out none"
        return None if self.schema.is_of(study.columns) else "sums of other columns"
