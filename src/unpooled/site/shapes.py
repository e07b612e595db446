"""What a reply holds, without its numbers: paths and shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from unpooled.protocol.messages import Message


def shapes(reply: Message) -> tuple[str, ...]:
    """One "path: shape" for every array, number and text; where many stand together, how many.

    >>> from unpooled.protocol.messages import Described, Refusal
    >>> shapes(Described({"rows": 30, "arms": {"0": 12, "1": 18}, "incomplete": []}))
    ('description.rows: number', 'description.arms: 2 numbers')
    """
    return tuple(_shapes(reply, ""))


def _shapes(value: Any, path: str) -> Iterator[str]:
    match value:
        case None:
            return
        case Message():
            yield from _each(((item.name, getattr(value, item.name)) for item in fields(value)), path)
        case dict() | list() | tuple() if _together(value):
            yield f"{path}: {_together(value)}"  # the keys may be levels of a column
        case dict():
            yield from _each(value.items(), path)
        case list() | tuple():
            yield from _each(enumerate(value), path)
        case str():
            yield f"{path}: text"
        case _:
            yield f"{path}: {'x'.join(map(str, getattr(value, 'shape', ()))) or 'number'}"


def _each(parts: Iterable[tuple[Any, Any]], path: str) -> Iterator[str]:
    for name, part in parts:
        yield from _shapes(part, f"{path}.{name}" if path else str(name))


def _together(value: dict[Any, Any] | list[Any] | tuple[Any, ...]) -> str:
    """How many numbers, or how many texts, where there is nothing else."""
    parts = list(value.values()) if isinstance(value, dict) else list(value)
    for kind, word in (((bool, int, float), "number"), (str, "text")):
        if parts and all(isinstance(part, kind) for part in parts):
            return f"{len(parts)} {word}{'s' if len(parts) > 1 else ''}"
    return ""
