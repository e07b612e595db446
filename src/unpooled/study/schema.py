"""What the sites agree on before anything is fitted: columns, kinds, category levels, the treated level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

from unpooled.errors import DataError, SchemaError
from unpooled.study.columns import Columns

Kind = Literal["numeric", "binary", "categorical", "count"]
LARGEST_COUNT = 30
"""Whole numbers up to this one are counts; larger ones are as good as any number."""
"""Counts are told apart where values may be missing: there a column needs a distribution of its own."""


class Column(BaseModel):
    """One covariate: its kind and, for a categorical one, its levels in a fixed order."""

    model_config = ConfigDict(frozen=True)

    name: str
    kind: Kind
    levels: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the numeric columns this covariate becomes; the first level is the reference."""
        if self.kind == "categorical":
            return tuple(f"{self.name}={level}" for level in self.levels[1:])
        return (self.name,)


class Description(BaseModel):
    """What one site says of its table.

    Reveals: number of rows, number of rows per treatment level, column kinds and category levels.
    """

    model_config = ConfigDict(frozen=True)

    rows: int
    arms: dict[str, int]
    columns: tuple[Column, ...]
    incomplete: tuple[Column, ...] = ()
    """Of the incomplete columns, those with a value at this site."""


class Schema(BaseModel):
    """The agreed reading of every site's table."""

    model_config = ConfigDict(frozen=True)

    covariates: tuple[Column, ...]
    control: str
    treated: str
    incomplete: tuple[Column, ...] = ()

    def is_of(self, columns: Columns) -> bool:
        """Whether this schema is about the covariates of these roles, in their order."""
        complete, incomplete = (
            tuple(one.name for one in part) for part in (self.covariates, self.incomplete)
        )
        return complete == columns.covariates and incomplete == columns.incomplete

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(name for column in self.covariates for name in column.features)

    @property
    def incomplete_features(self) -> tuple[str, ...]:
        return tuple(name for column in self.incomplete for name in column.features)

    @property
    def binary(self) -> tuple[bool, ...]:
        """Which features take only two values."""
        return tuple(column.kind != "numeric" for column in self.covariates for _ in column.features)


def agree(descriptions: Mapping[str, Description], columns: Columns) -> Schema:
    """The union of what the sites describe; an error that names the site where they cannot be reconciled."""
    by_site = {
        site: {column.name: column for column in (*d.columns, *d.incomplete)}
        for site, d in descriptions.items()
    }
    control, treated = _arms(descriptions, columns)
    return Schema(
        covariates=tuple(_merge(name, by_site) for name in columns.covariates),
        control=control,
        treated=treated,
        incomplete=tuple(_merge(name, by_site) for name in columns.incomplete),
    )


def _merge(name: str, by_site: Mapping[str, Mapping[str, Column]]) -> Column:
    """One reading of a column; sites where all its values are missing have no say."""
    mine = {site: described[name] for site, described in by_site.items() if name in described}
    if not mine:
        raise DataError(
            f"column '{name}' must have a value somewhere",
            found="none at any site",
            remedy="leave the column out of the study",
        )
    textual = {site for site, column in mine.items() if column.kind == "categorical"}
    if textual and len(textual) < len(mine):
        number = next(site for site in mine if site not in textual)
        raise SchemaError(
            f"column '{name}' must be of one kind at every site",
            found=f"text at site '{sorted(textual)[0]}', numbers at site '{number}'",
            remedy="recode the column at one of the two sites so that both hold the same kind",
        )
    if textual:
        levels = tuple(sorted({level for column in mine.values() for level in column.levels}))
        return Column(name=name, kind="categorical", levels=levels)
    kinds = {column.kind for column in mine.values()}
    # 0/1 at one site and 0, 1, 2, … at another is a count.
    narrow: tuple[Kind, ...] = ("binary",) if kinds == {"binary"} else ("binary", "count")
    return Column(name=name, kind=narrow[-1] if kinds <= set(narrow) else "numeric")


def _arms(descriptions: Mapping[str, Description], columns: Columns) -> tuple[str, str]:
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
            f"treatment '{columns.treatment}' must be 0/1, or the study must name the treated level",
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
    control = next(level for level in levels if level != treated)
    for site, description in descriptions.items():
        for level, arm in ((control, "control"), (treated, "treated")):
            if description.arms.get(level, 0) == 0:
                raise DataError(
                    f"site '{site}' must have people in both arms",
                    found=f"no row in the {arm} arm",
                    remedy="leave the site out, or define the treatment so that both arms occur there",
                )
    return control, treated


def level_name(value: object) -> str:
    """One spelling for a level however it was stored: 1, 1.0, True and "1" are the same.

    >>> level_name(1.0), level_name(True), level_name("yes")
    ('1', '1', 'yes')
    """
    item = getattr(value, "item", None)  # a NumPy scalar: np.bool_ is not a bool, np.float32 not a float
    value = item() if callable(item) else value
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
