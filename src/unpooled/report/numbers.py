"""Numbers as people read them, the same on the terminal, in the report and in the text of figures."""

from __future__ import annotations

from math import floor, isfinite, log10


def significant(value: float, digits: int = 3, *, signed: bool = False) -> str:
    """The value to this many significant digits, with an exponent only if it is very small or large.

    >>> [significant(value) for value in (2.0, 1476.2, -0.01234, 1.5e-9, 0.0)]
    ['2.00', '1,476', '-0.0123', '1.50e-09', '0']
    >>> significant(3.496, signed=True)
    '+3.50'
    """
    sign = "+" if signed else ""
    if value == 0.0 or not isfinite(value):
        return f"{value:g}"
    if not 1e-4 <= abs(value) < 1e7:
        return f"{value:{sign}.{digits - 1}e}"
    return f"{value:{sign},.{max(digits - 1 - floor(log10(abs(value))), 0)}f}"


def between(lower: float, upper: float) -> str:
    """An interval.

    >>> between(-0.5, 1234.5)
    '-0.500 to 1,234'
    """
    return f"{significant(lower)} to {significant(upper)}"
