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


PLAIN, MOST_PLACES = ".3g", 7
"""The format of numbers without an interval, and of those that would need more decimals than this."""


def form_of(lower: float, upper: float) -> str:
    """The format of a number with this interval: decimals that show about three digits of its width.

    >>> [format(value, form_of(129.41, 131.38)) for value in (130.4219, 129.41)]
    ['130.42', '129.41']
    >>> format(-12.53, form_of(-65.9, -7.03)), format(0.00041, form_of(0.0, 0.0))
    ('-13', '0.00041')
    """
    width = 2.0 * abs(upper - lower)
    places = 2 - floor(log10(width)) if 0.0 < width < float("inf") else MOST_PLACES + 1
    return f",.{max(places, 0)}f" if places <= MOST_PLACES else PLAIN


def between(lower: float, upper: float) -> str:
    """An interval.

    >>> between(-0.5, 1234.5)
    '-0.500 to 1,234'
    """
    return f"{significant(lower)} to {significant(upper)}"
