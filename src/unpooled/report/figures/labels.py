"""Names and labels as figures write them."""

from __future__ import annotations

LONGEST = 30
"""A longer name is written without its middle, so that the figure keeps its place."""
MANY = 25
"""From this many rows on they stand closer, in smaller letters."""


def literal(text: str) -> str:
    """A name as it is written: between two dollars matplotlib would look for a formula."""
    return text.replace("$", r"\$")


def shortened(name: object, longest: int = LONGEST) -> str:
    """A name as it is written, without its middle where it is long.

    >>> shortened("University Hospital of Lower Saxony, Cardiology")
    'University Hospital…Cardiology'
    """
    text = str(name)
    if len(text) > longest:
        end = longest // 3
        text = f"{text[: longest - end - 1].rstrip()}…{text[-end:].lstrip()}"
    return literal(text)


def on_outcome(what: str, outcome: str, unit: str) -> str:
    """The label of an axis of effects.

    >>> on_outcome("effect", "weight", "kg"), on_outcome("average effect", "weight", "")
    ('effect on weight (kg)', 'average effect on weight')
    """
    return f"{what} on {shortened(outcome)}" + (f" ({literal(unit)})" if unit else "")


def row_height(rows: int) -> float:
    """Inches for a row with a name."""
    return 0.34 if rows < MANY else 0.17
