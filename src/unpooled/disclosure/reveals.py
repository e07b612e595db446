"""Accounting of what leaves a site: what replies reveal, their shapes, and totals per kind of message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel

from unpooled.protocol.messages import Ask, Message, Replies, Statistics, question_kinds
from unpooled.protocol.stage import Stage

Line = dict[str, Any]
"""One line of a journal, as written by `unpooled.coordinator.journal`."""


def reveals(question: str, stages: Mapping[str, Stage]) -> str:
    """What the replies to a question reveal, part by part for a combined question."""
    texts = [_reveals(part, stages) for part in question.split(" + ")]
    return "; ".join(dict.fromkeys(texts))


def _reveals(part: str, stages: Mapping[str, Stage]) -> str:
    stage, _, words = part.rpartition(": ")
    kind = question_kinds().get(words, Ask)
    return stages[stage].reveals if kind is Ask and stage in stages else kind.reply.reveals


def revealed(question: str, reply: Message, stages: Mapping[str, Stage]) -> str:
    """What one reply reveals, part by part; for statistics, the text of their stages where available."""
    texts = [reply.reveals]
    if isinstance(reply, Replies):
        texts = [revealed(question, part, stages) for part in reply.replies]
    elif isinstance(reply, Statistics):
        asked = (part.removesuffix(f": {Ask.words}") for part in question.split(" + "))
        texts = [stages[name].reveals for name in asked if name in stages] or texts
    return "; ".join(dict.fromkeys(texts))


def left(lines: Iterable[Line], stages: Mapping[str, Stage]) -> dict[str, list[dict[str, Any]]]:
    """By site: the kinds of messages it sent with counts and bytes, in order of first occurrence."""
    kinds: dict[str, dict[str, dict[str, Any]]] = {}
    for line in lines:
        for site, traffic in line["bytes"].items():
            kind = line["question"]
            empty = {"kind": kind, "count": 0, "bytes": 0, "reveals": reveals(kind, stages)}
            entry = kinds.setdefault(site, {}).setdefault(kind, empty)
            entry["count"] += 1
            entry["bytes"] += traffic["up"]
    return {site: list(entries.values()) for site, entries in kinds.items()}


def cost(lines: Iterable[Line], sites: Iterable[str]) -> dict[str, Any]:
    """Rounds, seconds and bytes of a whole study, including one that was stopped and resumed.

    A resumed study journals its replayed rounds again without bytes, so bytes and seconds can be added up.
    If the study was killed before a round's line was written, that round's bytes are unknown; such rounds
    are counted in `rounds_without_bytes`.
    """
    lines = list(lines)
    numbers = {line["round"] for line in lines}
    asked = {line["round"] for line in lines if not line["replayed"]}
    return {
        "rounds": len(numbers),
        "rounds_without_bytes": len(numbers - asked),
        "seconds": sum(line["seconds"] for line in lines),
        "bytes_down": {site: _bytes(lines, site, "down") for site in sites},
        "bytes_up": {site: _bytes(lines, site, "up") for site in sites},
    }


def _bytes(lines: list[Line], site: str, direction: str) -> int:
    return sum(line["bytes"].get(site, {}).get(direction, 0) for line in lines)


def shapes(reply: Message) -> tuple[str, ...]:
    """One "path: shape" for every array, number and text; uniform collections give their length only.

    >>> from unpooled.protocol.messages import Described
    >>> from unpooled.study import Description
    >>> shapes(Described(Description(rows=30, arms={"0": 12, "1": 18}, columns=())))
    ('description.rows: number', 'description.arms: 2 numbers')
    """
    return tuple(_shapes(reply, ""))


def _shapes(value: Any, path: str) -> Iterator[str]:
    match value:
        case None:
            return
        case BaseModel():
            yield from _shapes(value.model_dump(), path)
        case _ if is_dataclass(value):
            yield from _each(((item.name, getattr(value, item.name)) for item in fields(value)), path)
        case dict() | list() | tuple() if _together(value):
            yield f"{path}: {_together(value)}"  # the keys may be category levels, so they are not shown
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
    """The length of a collection of numbers only or of texts only, in words; otherwise empty."""
    parts = list(value.values()) if isinstance(value, dict) else list(value)
    for kind, word in (((bool, int, float), "number"), (str, "text")):
        if parts and all(isinstance(part, kind) for part in parts):
            return f"{len(parts)} {word}{'s' if len(parts) > 1 else ''}"
    return ""
