"""Whether two messages say the same, up to the rounding of another machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from unpooled.protocol.codec import decode, encode
from unpooled.protocol.messages import Message

TOLERANCE = 1e-6
"""The largest difference between two arrays, as a share of the largest number in them."""


def difference(expected: Message, found: Message, tolerance: float = TOLERANCE) -> str | None:
    """The first place at which a message departs from the expected one, and how; None if nowhere.

    >>> from unpooled.protocol.messages import Ask
    >>> from unpooled.protocol.records import Parameters
    >>> first, second = (Ask("ridge", Parameters({"x": np.array([2.0, at])})) for at in (1.0, 1.5))
    >>> difference(first, second)
    'parameters.free.x differs by 0.25 of its largest number'
    """
    # Encoded and decoded, both consist of the same few types.
    return next(_differences(decode(encode(expected)), decode(encode(found)), "", tolerance), None)


def _differences(expected: Any, found: Any, place: str, tolerance: float) -> Iterator[str]:
    if isinstance(expected, float) and isinstance(found, float):
        expected, found = np.asarray(expected), np.asarray(found)
    if type(expected) is not type(found):
        yield f"{place or 'the message'} is {_kind(found)} instead of {_kind(expected)}"
    elif isinstance(expected, np.ndarray):
        yield from _arrays(expected, found, place, tolerance)
    elif is_dataclass(expected):
        names = [item.name for item in fields(expected)]
        pairs = {name: (getattr(expected, name), getattr(found, name)) for name in names}
        yield from _each(pairs, place, tolerance)
    elif isinstance(expected, dict):
        if set(expected) != set(found):
            yield f"{place} has other names"
            return
        yield from _each({key: (expected[key], found[key]) for key in expected}, place, tolerance)
    elif isinstance(expected, list | tuple):
        if len(expected) != len(found):
            yield f"{place} has {len(found)} parts instead of {len(expected)}"
            return
        yield from _each(dict(enumerate(zip(expected, found, strict=True))), place, tolerance)
    elif expected != found:
        yield f"{place} is another"


def _each(pairs: dict[Any, tuple[Any, Any]], place: str, tolerance: float) -> Iterator[str]:
    for name, (expected, found) in pairs.items():
        yield from _differences(expected, found, f"{place}.{name}" if place else str(name), tolerance)


def _arrays(expected: np.ndarray, found: np.ndarray, place: str, tolerance: float) -> Iterator[str]:
    if expected.shape != found.shape or expected.dtype.kind != found.dtype.kind:
        yield f"{place} has the shape {found.shape} instead of {expected.shape}, or another type"
    elif expected.dtype.kind != "f":
        if not np.array_equal(expected, found):
            yield f"{place} has other numbers"
    elif not np.array_equal(_marks(expected), _marks(found)):
        yield f"{place} is not finite in other places"
    else:
        finite = np.isfinite(expected)
        apart = np.max(np.abs(expected[finite] - found[finite]), initial=0.0)
        scale = np.max(np.abs([expected[finite], found[finite]]), initial=0.0)
        if apart > tolerance * scale:
            yield f"{place} differs by {apart / scale:.2g} of its largest number"


def _marks(array: np.ndarray) -> np.ndarray:
    """0 for finite numbers, otherwise which kind of number it is."""
    return np.where(np.isnan(array), 2.0, np.where(np.isinf(array), np.sign(array), 0.0))


def _kind(value: Any) -> str:
    return type(value).__name__
