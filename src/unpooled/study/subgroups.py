"""Subgroups of people, as a study names them: by ranges or levels of a column, or by rules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from unpooled.errors import StudyError, nearest
from unpooled.study.columns import ColumnRoles
from unpooled.study.rules import (
    All,
    Column,
    Comparison,
    Rule,
    Value,
    columns_in,
    comparisons,
    for_columns,
    holds,
    parse_rule,
)
from unpooled.study.schema import ColumnSchema, Schema, level_name

LEVELS = "levels"
"""What a study writes in place of a rule for a group per level of a column."""
MOST = 50
"""Most subgroups of a study."""
RESERVED = ("everybody", "treated", "controls", "overlap", LEVELS)
"""Names that stand for something else."""
Entry = tuple[float, ...] | str
"""How a study defines groups: lower ends of ranges, "levels", or a rule."""


@dataclass(frozen=True)
class Subgroup:
    """A group of people: its name, the key under which the study defines it, and its rule."""

    name: str
    entry: str
    rule: Rule


def subgroup_words(name: str, entry: Entry) -> str:
    """How a study defines groups, for people.

    >>> subgroup_words("age", (0.0, 50.0)), subgroup_words("sex", "levels")
    ('age from 0, 50', 'sex by level')
    >>> subgroup_words("older", "age >= 65")
    'older (age >= 65)'
    """
    if not isinstance(entry, str):
        return f"{name} from {', '.join(map(_written, entry))}"
    return f"{name} by level" if entry == LEVELS else f"{name} ({entry})"


def is_rule(entry: Entry) -> bool:
    """Whether a study's entry is a rule, which defines a single group."""
    return isinstance(entry, str) and entry != LEVELS


def check_subgroups(subgroups: Mapping[str, Entry], columns: ColumnRoles) -> None:
    """Refuse groups that no table could define, before any site is asked."""
    for name, entry in subgroups.items():
        if not name.strip() or name in RESERVED:
            raise StudyError(
                "a subgroup must have a name of its own",
                found=f"'{name}'",
                remedy=f"use a name other than {', '.join(RESERVED)}",
            )
        used = columns_in(parse_rule(entry)) if isinstance(entry, str) and entry != LEVELS else (name,)
        for column in used:
            _require_covariate(column, name, columns)
        if not isinstance(entry, str):
            _require_ends(name, entry)


def listed(subgroups: Mapping[str, Entry], schema: Schema) -> tuple[Subgroup, ...]:
    """All groups in the order of the study, by the columns and levels that the sites have agreed on."""
    found = tuple(one for name, entry in subgroups.items() for one in _groups(name, entry, schema))
    names = [one.name for one in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or len(found) > MOST:
        raise StudyError(
            f"there may be at most {MOST} subgroups, with names of their own",
            found=f"the name '{twice[0]}' twice" if twice else f"{len(found)} subgroups",
            remedy="name the rule differently" if twice else "join levels in a rule, or leave out a column",
        )
    return found


def levels_named(subgroups: Mapping[str, Entry], column: str) -> set[str]:
    """The levels that the rules of a study name for a column."""
    rules = [parse_rule(entry) for entry in subgroups.values() if isinstance(entry, str) and entry != LEVELS]
    found = (one.right for rule in rules for one in comparisons(rule) if one.left == Column(column))
    return {level_name(value) for term in found for value in _values_of(term)}


def _values_of(term: Column | Value) -> tuple[float | str, ...]:
    if isinstance(term, Column):
        return ()
    return term if isinstance(term, tuple) else (term,)


def about_as_many(subgroups: Mapping[str, Entry]) -> int:
    """About how many groups a study defines, before its levels are known: two for a column's levels."""
    return sum(1 if is_rule(entry) else 2 if entry == LEVELS else len(entry) for entry in subgroups.values())


def members(groups: Sequence[Subgroup], schema: Schema, covariates: np.ndarray) -> np.ndarray:
    """Who belongs to each group [group, n], from the features of the covariates in their own units."""
    values = _values(schema, covariates)
    found = [holds(one.rule, values) for one in groups]
    return np.array(found, dtype=bool).reshape(len(groups), len(covariates))


def _values(schema: Schema, covariates: np.ndarray) -> dict[str, np.ndarray]:
    """Each column as numbers, or as names of levels."""
    found, start = {}, 0
    for column in schema.covariates:
        width = len(column.features)
        features = covariates[:, start : start + width]
        start += width
        if column.kind == "categorical":  # the first level is the one without a feature
            found[column.name] = np.array(column.levels)[(features @ np.arange(1, width + 1)).astype(int)]
        else:
            found[column.name] = features[:, 0]
    return found


def _groups(name: str, entry: Entry, schema: Schema) -> Iterator[Subgroup]:
    known = {column.name: column for column in schema.covariates}
    if isinstance(entry, str) and entry != LEVELS:
        yield Subgroup(name, name, for_columns(parse_rule(entry), schema.covariates, name))
        return
    column = known[name]
    if isinstance(entry, str):
        for level in _levels(column):
            yield Subgroup(f"{name} = {_written(level)}", name, Comparison(Column(name), "==", level))
        return
    if column.kind == "categorical":
        raise StudyError(
            f"ranges of '{name}' must be of a column of numbers",
            found="text",
            remedy=f'write {name} = "levels", or a rule',
        )
    for low, high in pairwise((*entry, math.inf)):
        above = Comparison(Column(name), ">=", low)
        if math.isinf(high):
            yield Subgroup(f"{name} {_written(low)} and over", name, above)
        else:
            both = All((above, Comparison(Column(name), "<", high)))
            yield Subgroup(f"{name} {_written(low)} to {_written(high)}", name, both)


def _levels(column: ColumnSchema) -> Sequence[str | float]:
    if column.kind == "categorical":
        return column.levels
    if column.kind == "binary":
        return (0.0, 1.0)
    raise StudyError(
        f"a group for each level of '{column.name}' needs a column of text, or of 0 and 1",
        found="other numbers, whose values no site tells",
        remedy=f"give lower ends, such as {column.name} = [0, 50, 65], or a rule",
    )


def _written(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.12g}"


def _require_covariate(column: str, group: str, columns: ColumnRoles) -> None:
    if column in columns.covariates:
        return
    if column in columns.incomplete:
        found, remedy = f"'{column}', which has missing values", "use a complete covariate"
    elif column in columns.names:
        found, remedy = f"'{column}', which is no covariate of the study", "use a covariate"
    else:
        found, remedy = f"unknown column '{column}'", nearest(column, columns.covariates)
    raise StudyError(
        f"subgroup '{group}' must be defined by complete covariates of the study", found=found, remedy=remedy
    )


def _require_ends(name: str, ends: Sequence[float]) -> None:
    rising = all(low < high for low, high in pairwise(ends))
    if not ends or not rising or not all(math.isfinite(end) for end in ends):
        raise StudyError(
            f"the ranges of '{name}' must be given by their lower ends, from small to large",
            found="no number" if not ends else "numbers that do not rise",
            remedy=f"write them like {name} = [0, 50, 65]",
        )
