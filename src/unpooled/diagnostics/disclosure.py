"""What left each site: every kind of message, how often, how many bytes, and what it reveals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from unpooled.protocol.messages import Adopted, Described, Gradient, Statistics, Summary
from unpooled.protocol.stage import Stage

Line = dict[str, Any]
"""One line of a journal."""

_REPLIES = {"describe": Described.reveals, "summarise": Summary.reveals, "adopt": Adopted.reveals}


def reveals(question: str, stages: Mapping[str, Stage]) -> str:
    """What the replies to a question reveal; a question of several parts reveals what each part does."""
    texts = [_reveals(part, stages) for part in question.split(" + ")]
    return "; ".join(dict.fromkeys(texts))


def _reveals(part: str, stages: Mapping[str, Stage]) -> str:
    name, _, kind = part.partition(": ")
    if name in _REPLIES:
        return _REPLIES[name]
    if kind == "gradient":
        return Gradient.reveals
    return stages[name].reveals if name in stages else Statistics.reveals


def left(lines: Iterable[Line], stages: Mapping[str, Stage]) -> dict[str, list[dict[str, Any]]]:
    """By site: the kinds of messages that left it, in the order of their first time."""
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
    """Rounds, seconds and bytes of a whole study: also of one that was stopped and resumed.

    A resumed study writes its replayed rounds again, without bytes, so bytes and seconds add up. A round
    that was answered in the instant the study was killed may be on no line with its bytes; it is counted.
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


def _bytes(lines: list[Line], site: str, way: str) -> int:
    return sum(line["bytes"].get(site, {}).get(way, 0) for line in lines)
