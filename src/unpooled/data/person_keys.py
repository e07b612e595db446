"""The key of a person: the values of the `id` columns, written so that all sites write them alike.

- Text is in Unicode form NFKC and in lower case (case-folded), without spaces, punctuation and control
  characters. Leading zeros of text are kept.
- Whole numbers are written as digits, so that 123, 123.0 and the texts "123" and "123.0" are the same key.
- Dates are written as year, month and day; a time of day other than midnight follows.
- A key of several columns has a value in each of them. A row that lacks one has no key, and matches no
  other row.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Literal

import numpy as np
import pandas as pd

from unpooled.data.stored_columns import column
from unpooled.errors import DataError
from unpooled.study import ColumnRoles

BETWEEN = "\x1f"
"""Stands between the parts of a key; no part contains a control character."""
LARGEST_EXACT = 2**53
"""Floating-point numbers from here on may have lost digits."""
LEFT_OUT = ("P", "Z", "C")
"""Unicode categories that are removed: punctuation, separators, control and formatting characters."""


@dataclass(frozen=True)
class PersonKeys:
    """The people of one table, by their keys."""

    keys: list[str] = field(repr=False)
    """The key of every person, each once."""
    person: np.ndarray = field(repr=False)
    """The place in `keys` of the person of every row; -1 for a row that matches no other."""
    without_key: int
    """Rows that lack a value of the key."""
    wrong_check: int
    """Rows whose check digit is wrong."""

    @property
    def repeated(self) -> int:
        """Rows of people who have another row in the same table."""
        return int(np.sum(self.person >= 0)) - len(self.keys)


def person_keys(frame: pd.DataFrame, columns: ColumnRoles, *, site: str) -> PersonKeys:
    """The keys of a table's rows.

    >>> roles = ColumnRoles(treatment="w", outcome="y", covariates=["x"], id=["country", "number"])
    >>> frame = pd.DataFrame({"country": ["FR", "fr ", "FR", None], "number": [7, 7, 8, 9]})
    >>> found = person_keys(frame, roles, site="north")
    >>> found.person.tolist(), found.without_key, found.repeated
    ([0, 0, 1, -1], 1, 1)
    """
    parts = [_written(column(frame, name), site) for name in columns.identity]
    keys = [BETWEEN.join(each) if all(each) else "" for each in zip(*parts, strict=True)]
    right = CHECKS[columns.id_check] if columns.id_check is not None else lambda key: True
    wrong = {key for key in set(keys) if key and not right(key)}
    usable = pd.Series([None if not key or key in wrong else key for key in keys], dtype=object)
    person, found = pd.factorize(usable)
    absent, failed = sum(not key for key in keys), sum(key in wrong for key in keys)
    return PersonKeys([str(key) for key in found], person, absent, failed)


def _written(series: pd.Series, site: str) -> list[str]:
    """The normalised values of a column; empty where there is none."""
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(object)
    try:
        return [normalised(value) for value in series.tolist()]
    except ValueError:
        raise DataError(
            f"'{series.name}' must identify people at site '{site}'",
            found="numbers with decimals or too large to be exact, or values that are no text or date",
            remedy="store the column as text or as whole numbers",
        ) from None


def normalised(value: object) -> str:
    """One value as it is written in a key; empty if it is missing, `ValueError` if it identifies nobody.

    >>> [normalised(value) for value in (123, 123.0, "123", "123.0", "0123", None, float("nan"))]
    ['123', '123', '123', '123', '0123', '', '']
    >>> normalised("  O’Neill-Ward "), normalised("ＡＢ 12-34"), normalised("STRASSE") == normalised("Straße")
    ('oneillward', 'ab1234', True)
    >>> normalised(date(1980, 2, 1)), normalised(datetime(1980, 2, 1)), normalised("1980-02-01")
    ('19800201', '19800201', '19800201')
    """
    match value:
        case str():
            return _text(value)
        case datetime() if not pd.isna(value):
            return _text(value.date().isoformat() if value.time() == MIDNIGHT else value.isoformat())
        case date() if not pd.isna(value):
            return _text(value.isoformat())
        case bool() | int() | np.integer() | np.bool_():
            return str(int(value))
        case float() | np.floating() | Decimal() if value == value:
            return _whole(value)
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float | Decimal)):
        return ""
    raise ValueError("no text, number or date")


MIDNIGHT = datetime.min.time()


def _text(value: str) -> str:
    form = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", value).casefold())
    form = re.sub(r"^\s*(\d+)\.0+\s*$", r"\1", form)  # a whole number that was once a float
    kept = "".join(sign for sign in form if unicodedata.category(sign)[0] not in LEFT_OUT)
    return unicodedata.normalize("NFKC", kept)


def _whole(value: float | np.floating | Decimal) -> str:
    if value != value // 1 or (not isinstance(value, Decimal) and abs(value) >= LARGEST_EXACT):
        raise ValueError("no whole number")
    return str(int(value))


def mod11(key: str) -> bool:
    """Whether the last of ten digits is right, by the rule of British NHS numbers.

    >>> mod11("9434765919"), mod11("9434765918"), mod11("943476591")
    (True, False, False)
    """
    if len(key) != 10 or not (key.isascii() and key.isdigit()):
        return False
    digits = [int(digit) for digit in key]
    total = sum(weight * digit for weight, digit in zip(range(10, 1, -1), digits, strict=False))
    return (11 - total % 11) % 11 == digits[-1]


def luhn(key: str) -> bool:
    """Whether the last digit is right, by Luhn's rule.

    >>> luhn("79927398713"), luhn("79927398710"), luhn("7992739871x")
    (True, False, False)
    """
    if len(key) < 2 or not (key.isascii() and key.isdigit()):
        return False
    digits = [int(digit) for digit in reversed(key)]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


CHECKS: dict[Literal["mod11", "luhn"], Callable[[str], bool]] = {"mod11": mod11, "luhn": luhn}
