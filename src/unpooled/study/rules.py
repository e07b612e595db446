"""Rules that say who belongs to a group of people, such as "age >= 65 and sex == 'f'".

A rule is Python's syntax for comparisons, `in`, `and`, `or` and `not`, and nothing else: it is parsed,
checked against the columns, and evaluated here, never run as code.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import NoReturn
from warnings import catch_warnings

import numpy as np

from unpooled.errors import StudyError, nearest
from unpooled.study.schema import ColumnSchema, level_name

LONGEST = 1000
"""Most characters of a rule."""
SHOWN = 100
"""Most characters of it in an error."""


@dataclass(frozen=True)
class Column:
    """The values of a column."""

    name: str


Value = float | str | tuple[float | str, ...]


@dataclass(frozen=True)
class Comparison:
    """A column compared with a value, several values (`in`), or another column."""

    left: Column | Value
    operator: str
    right: Column | Value


@dataclass(frozen=True)
class All:
    """Everybody for whom all parts hold."""

    parts: tuple[Rule, ...]


@dataclass(frozen=True)
class Some:
    """Everybody for whom one of the parts holds, or several."""

    parts: tuple[Rule, ...]


@dataclass(frozen=True)
class Not:
    """Everybody for whom the part does not hold."""

    part: Rule


Rule = Comparison | All | Some | Not

COMPARE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "in": np.isin,
    "not in": lambda values, known: np.isin(values, known, invert=True),
}
OF_NAMES = ("==", "!=", "in", "not in")
"""Comparisons that make sense for text."""
OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.In: "in",
    ast.NotIn: "not in",
}
EXAMPLE = "write a rule such as \"age >= 65 and sex == 'f'\""


def parse_rule(text: str) -> Rule:
    """The rule in this text. A column whose name is not one word is written between backticks.

    >>> parse_rule("`body mass` >= 30")
    Comparison(left=Column(name='body mass'), operator='>=', right=30.0)
    """
    if len(text) > LONGEST:
        _refuse(text, f"more than {LONGEST} characters")
    quoted: dict[str, str] = {}
    mark = "column"
    while mark in text:
        mark += "_"

    def named(found: re.Match[str]) -> str:
        if found[1] is None:  # a text in quotes
            return found[0]
        name = f"{mark}{len(quoted)}"
        quoted[name] = found[1]
        return name

    source = re.sub(r"'[^']*'|\"[^\"]*\"|`([^`]+)`", named, text.strip())
    try:
        with catch_warnings(action="ignore"):  # about escapes such as '\\d'
            tree = ast.parse(source, mode="eval").body
        return _rule(tree, text, quoted)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        _refuse(text, "a syntax error")


def _rule(node: ast.expr, text: str, quoted: Mapping[str, str]) -> Rule:
    match node:
        case ast.BoolOp(op, values):
            parts = tuple(_rule(value, text, quoted) for value in values)
            return All(parts) if isinstance(op, ast.And) else Some(parts)
        case ast.UnaryOp(ast.Not(), operand):
            return Not(_rule(operand, text, quoted))
        case ast.Compare(left, operators, comparators):
            terms = [_term(one, text, quoted) for one in (left, *comparators)]
            each = zip(terms, operators, terms[1:], strict=False)
            parts = tuple(
                _comparison(before, OPERATORS.get(type(op)), after, text) for before, op, after in each
            )
            return parts[0] if len(parts) == 1 else All(parts)
        case ast.Name(name):
            _refuse(text, f"'{quoted.get(name, name)}' without a comparison, such as == 1")
    _refuse(text, "something else than comparisons, in, and, or, not")


def _term(node: ast.expr, text: str, quoted: Mapping[str, str]) -> Column | Value:
    match node:
        case ast.Name(name):
            return Column(quoted.get(name, name))
        case ast.Constant(value):
            return _constant(value, text)
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
            return _constant(-value, text)
        case ast.Tuple(elements) | ast.List(elements) | ast.Set(elements):
            values = [_term(element, text, quoted) for element in elements]
            if values and all(isinstance(value, float | str) for value in values):
                return tuple(value for value in values if isinstance(value, float | str))
            _refuse(text, "a list of something else than numbers or names of levels")
    _refuse(text, "a calculation, or something else than columns, numbers and names of levels")


def _constant(value: object, text: str) -> float | str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float) and math.isfinite(value):
        return float(value)
    _refuse(text, "a value that is neither a number nor the name of a level")


def _comparison(left: Column | Value, operator: str | None, right: Column | Value, text: str) -> Comparison:
    if operator is None:
        _refuse(text, "`is`, which compares nothing here; write ==")
    several = isinstance(right, tuple)
    if isinstance(left, tuple) or several != (operator in ("in", "not in")):
        _refuse(text, "`in` without a list of values after it, or a list without `in`")
    if not isinstance(left, Column) and (several or not isinstance(right, Column)):
        _refuse(text, "a comparison without a column before it")
    return Comparison(left, operator, right)


def columns_in(rule: Rule) -> tuple[str, ...]:
    """The columns of a rule, in the order in which they occur first."""
    terms = (term for one in comparisons(rule) for term in (one.left, one.right))
    return tuple(dict.fromkeys(term.name for term in terms if isinstance(term, Column)))


def comparisons(rule: Rule) -> Iterator[Comparison]:
    """All comparisons of a rule."""
    match rule:
        case Comparison():
            yield rule
        case Not(part):
            yield from comparisons(part)
        case All(parts) | Some(parts):
            for part in parts:
                yield from comparisons(part)


def holds(rule: Rule, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """For whom the rule holds [n], from columns of numbers or of names of levels."""

    def of(term: Column | Value) -> np.ndarray:
        return values[term.name] if isinstance(term, Column) else np.asarray(term)

    match rule:
        case Comparison(left, operator, right):
            return COMPARE[operator](of(left), of(right))
        case Not(part):
            return ~holds(part, values)
        case All(parts):
            return reduce(np.logical_and, (holds(part, values) for part in parts))
        case Some(parts):
            return reduce(np.logical_or, (holds(part, values) for part in parts))


def for_columns(rule: Rule, columns: Collection[ColumnSchema], group: str) -> Rule:
    """The rule with values of the kind that each column has; an error if a comparison makes no sense."""
    known = {column.name: column for column in columns}
    match rule:
        case Comparison():
            return _fitted(rule, known, group)
        case Not(part):
            return Not(for_columns(part, columns, group))
        case All(parts):
            return All(tuple(for_columns(part, columns, group) for part in parts))
        case Some(parts):
            return Some(tuple(for_columns(part, columns, group) for part in parts))


def _fitted(one: Comparison, known: Mapping[str, ColumnSchema], group: str) -> Comparison:
    terms = [one.left, one.right]
    columns = [known[term.name] for term in terms if isinstance(term, Column)]
    textual = [column for column in columns if column.kind == "categorical"]
    if not textual:
        texts = [term for term in terms if isinstance(term, str) or _has_text(term)]
        if texts:
            raise StudyError(
                f"subgroup '{group}' must compare numbers with numbers",
                found=f"'{columns[0].name}', which is numeric, compared with text",
                remedy="write the number without quotes",
            )
        return one
    column = textual[0]
    if len(columns) > 1 or one.operator not in OF_NAMES:
        raise StudyError(
            f"subgroup '{group}' must compare text with names of levels, by ==, != or in",
            found=f"'{column.name}', which is text, with {one.operator}",
            remedy=f"name its levels: {_levels(column)}",
        )
    left, right = (term if isinstance(term, Column) else _names(term, column, group) for term in terms)
    return Comparison(left, one.operator, right)


def _has_text(term: Column | Value) -> bool:
    return isinstance(term, tuple) and any(isinstance(value, str) for value in term)


def _names(value: Value, column: ColumnSchema, group: str) -> str | tuple[str, ...]:
    """The names of levels that a value of a rule stands for: 1, 1.0 and "1" are the same level."""
    if isinstance(value, tuple):
        return tuple(str(_names(one, column, group)) for one in value)
    name = level_name(value)
    if name not in column.levels:
        raise StudyError(
            f"subgroup '{group}' must name levels that '{column.name}' has",
            found=f"'{name}'",
            remedy=nearest(name, column.levels),
        )
    return name


def _levels(column: ColumnSchema) -> str:
    return ", ".join(f"'{level}'" for level in column.levels)


def _refuse(text: str, found: str) -> NoReturn:
    raise StudyError(
        "the rule of a subgroup must be comparisons of columns, joined by and, or, not",
        found=f"{found}, in: {text if len(text) <= SHOWN else text[:SHOWN] + '…'}",
        remedy=EXAMPLE,
    )
