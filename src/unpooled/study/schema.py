"""The schema that the sites agree on before the fit: kinds of columns, category levels, treated level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from unpooled.errors import DataError, Problems, SchemaError
from unpooled.study.columns import ColumnRoles, flag_name
from unpooled.study.family import Family

Kind = Literal["numeric", "binary", "categorical", "count"]
LARGEST_COUNT = 30
"""Incomplete columns of whole numbers up to this one are modelled as counts, larger ones as numeric."""


class ColumnSchema(BaseModel):
    """One covariate: its kind and, if it is categorical, its levels in a fixed order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: Kind
    levels: tuple[str, ...] = ()
    filled: float | None = Field(default=None, allow_inf_nan=False)
    """What every feature of this column has in place of a missing value; None if no value may be missing."""
    flags: str | None = None
    """The column whose missing values this 0/1 column marks; None for a column of the table."""

    @model_validator(mode="after")
    def _levels_of_categories(self) -> ColumnSchema:
        if len(set(self.levels)) != len(self.levels) or (self.levels and self.kind != "categorical"):
            raise ValueError("levels must be different, and of a categorical column")
        return self

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the numeric columns that encode this covariate; the first level is the reference."""
        if self.kind == "categorical":
            return tuple(f"{self.name}={level}" for level in self.levels[1:])
        return (self.name,)


class Description(BaseModel):
    """A site's description of its table.

    Reveals: number of rows, number of rows per treatment level, column kinds and category levels.
    The kind of the outcome is the narrowest family that allows all its values here, if the study asks for it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int
    arms: dict[str, int]
    columns: tuple[ColumnSchema, ...]
    incomplete: tuple[ColumnSchema, ...] = ()
    """The incomplete columns that have an observed value at this site."""
    outcome: Family = "continuous"
    """The narrowest family that allows all outcomes of this site or, if the study names one, that family."""


class Schema(BaseModel):
    """How every site reads its table, as agreed by all sites."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    covariates: tuple[ColumnSchema, ...]
    control: str
    treated: str
    incomplete: tuple[ColumnSchema, ...] = ()

    def is_of(self, columns: ColumnRoles) -> bool:
        """Whether this schema is about the covariates of these roles, in their order.

        With indicators it is, too, before the sites know which values to put in place of missing ones.
        """
        read = tuple(one.name for one in self.covariates if one.flags is None)
        flags = [(one.flags, one.kind, one.filled) for one in self.covariates if one.flags is not None]
        filled = {one.name for one in self.covariates if one.filled is not None}
        incomplete = tuple(one.name for one in self.incomplete)
        indicators = columns.missing == "indicator"
        if not flags and not filled and incomplete == columns.incomplete and read == columns.covariates:
            return bool(columns.modelled) or not incomplete or indicators
        if columns.modelled or incomplete or read != (*columns.covariates, *columns.incomplete):
            return False
        allowed = set(columns.incomplete) if indicators else set()
        marks = [name for name, kind, fill in flags if kind == "binary" and fill is None]
        return len(marks) == len(flags) == len(set(marks)) and set(marks) <= allowed and filled <= allowed

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(name for column in self.covariates for name in column.features)

    @property
    def incomplete_features(self) -> tuple[str, ...]:
        return tuple(name for column in self.incomplete for name in column.features)

    @property
    def binary(self) -> tuple[bool, ...]:
        """Whether each feature takes only two values."""
        return tuple(column.kind != "numeric" for column in self.covariates for _ in column.features)


def agree(descriptions: Mapping[str, Description], columns: ColumnRoles) -> Schema:
    """Combine the sites' descriptions into a schema; raise an error if they are not compatible."""
    by_site = {
        site: {column.name: column for column in (*d.columns, *d.incomplete)}
        for site, d in descriptions.items()
    }
    problems, control, treated = Problems(), "", ""
    with problems.collected():
        control, treated = _arms(descriptions, columns)
    found: dict[str, ColumnSchema] = {}
    for name in (*columns.covariates, *columns.incomplete):
        with problems.collected():
            found[name] = _merge(name, by_site)
    problems.raise_all()
    complete = tuple(found[name] for name in columns.covariates)
    incomplete = tuple(found[name] for name in columns.incomplete)
    if columns.missing == "complete cases":
        complete, incomplete = (*complete, *map(_as_covariate, incomplete)), ()
    return Schema(covariates=complete, control=control, treated=treated, incomplete=incomplete)


def _as_covariate(column: ColumnSchema) -> ColumnSchema:
    """An incomplete column without missing values; counts among covariates are numbers."""
    return column.model_copy(update={"kind": "numeric"}) if column.kind == "count" else column


def with_indicators(schema: Schema, seen: Mapping[str, tuple[int, float]], people: int) -> Schema:
    """The schema with the incomplete columns among the covariates, followed by 0/1 columns of their gaps.

    `seen` has the number and the mean of the values that are present of each column. Numbers get the mean in
    place of a missing value; 0/1 columns and categories get 0, so that with the 0/1 column "missing" is one
    more level.
    """
    columns = [_as_covariate(column) for column in schema.incomplete]
    gaps = {column.name for column in columns if seen[column.name][0] < people}
    filled = [
        column.model_copy(update={"filled": seen[column.name][1] if column.kind == "numeric" else 0.0})
        if column.name in gaps
        else column
        for column in columns
    ]
    flags = [
        ColumnSchema(name=flag_name(one.name), kind="binary", flags=one.name)
        for one in columns
        if one.name in gaps
    ]
    return schema.model_copy(update={"covariates": (*schema.covariates, *filled, *flags), "incomplete": ()})


def _merge(name: str, by_site: Mapping[str, Mapping[str, ColumnSchema]]) -> ColumnSchema:
    """Combine the descriptions of a column, from the sites that have observed values of it."""
    mine = {site: described[name] for site, described in by_site.items() if name in described}
    if not mine:
        raise DataError(
            f"column '{name}' must have observed values at some site",
            found="no observed value at any site",
            remedy="leave the column out of the study",
        )
    textual = {site for site, column in mine.items() if column.kind == "categorical"}
    if textual and len(textual) < len(mine):
        number = next(site for site in mine if site not in textual)
        raise SchemaError(
            f"column '{name}' must be of one kind at every site",
            found=f"text at site '{sorted(textual)[0]}', numbers at site '{number}'",
            remedy="recode the column at one of the two sites so that both have the same kind",
        )
    if textual:
        levels = tuple(sorted({level for column in mine.values() for level in column.levels}))
        return ColumnSchema(name=name, kind="categorical", levels=levels)
    kinds = {column.kind for column in mine.values()}
    # A column with 0/1 at one site and 0, 1, 2, … at another is a count.
    narrow: tuple[Kind, ...] = ("binary",) if kinds == {"binary"} else ("binary", "count")
    return ColumnSchema(name=name, kind=narrow[-1] if kinds <= set(narrow) else "numeric")


def _arms(descriptions: Mapping[str, Description], columns: ColumnRoles) -> tuple[str, str]:
    levels = sorted({level for description in descriptions.values() for level in description.arms})
    if len(levels) != 2:
        raise DataError(
            f"treatment '{columns.treatment}' must have exactly two levels over all sites",
            found=f"{len(levels)} levels",
            remedy="recode the treatment to 0 (control) and 1 (treated)",
        )
    if levels == ["0", "1"] and columns.treated is None:
        treated = "1"
    elif columns.treated is None:
        raise DataError(
            f"treatment '{columns.treatment}' must be 0/1, or the study must specify the treated level",
            found="two levels that are not 0 and 1, and no `treated`",
            remedy='recode to 0/1, or add `treated = "…"` to the study\'s columns',
        )
    else:
        treated = level_name(columns.treated)
        if treated not in levels:
            raise DataError(
                f"the treated level must be one of the levels of '{columns.treatment}'",
                found=f"`treated` names a level that no site has: '{treated}'",
                remedy="correct `treated` in the study's columns",
            )
    return next(level for level in levels if level != treated), treated


def level_name(value: object) -> str:
    """The name of a level, independent of how it is stored: 1, 1.0, True and "1" are the same level.

    >>> level_name(1.0), level_name(True), level_name("yes")
    ('1', '1', 'yes')
    """
    item = getattr(value, "item", None)  # NumPy scalars: np.bool_ is not a bool, np.float32 is not a float
    value = item() if callable(item) else value
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
