"""Accounting of what leaves a site: what replies reveal, their shapes, and totals per kind of message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Literal, TypedDict

from pydantic import BaseModel

from unpooled.protocol.key_messages import Masked
from unpooled.protocol.messages import Ask, Message, Replies, Statistics, question_kinds
from unpooled.protocol.records import Record
from unpooled.protocol.stage import Stage

MASKED = "masked, so that sums are known over all sites only: "
"""Comes before what a message reveals."""


class Bytes(TypedDict):
    """The bytes of one exchange with a site: `down` to the site, `up` from it."""

    down: int
    up: int


class Line(TypedDict):
    """One line of a journal, as written by `unpooled.coordinator.journal`."""

    round: int
    question: str
    seconds: float
    replayed: bool
    masked: bool
    """Whether sums were masked, so that those of a single site are not known."""
    objective: float | None
    bytes: dict[str, Bytes]
    ledgers: dict[str, str]
    """Number of lines and last hash of each site's ledger after its reply."""


class Sent(TypedDict):
    """How many messages of one kind a site has sent, their bytes, and what they reveal."""

    kind: str
    count: int
    bytes: int
    reveals: str


@dataclass(frozen=True)
class Cost(Record):
    """What a study has cost; bytes are by site, seconds are of computation."""

    rounds: int
    rounds_without_bytes: int
    """Rounds whose bytes are not known, because the study was killed before they were written down."""
    seconds: float
    bytes_down: dict[str, int]
    bytes_up: dict[str, int]


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
    if isinstance(reply, Masked):
        texts = [f"only as a sum over all sites: {revealed(question, reply.plain, stages)}"]
    elif isinstance(reply, Replies):
        texts = [revealed(question, part, stages) for part in reply.replies]
    elif isinstance(reply, Statistics):
        asked = (part.removesuffix(f": {Ask.words}") for part in question.split(" + "))
        texts = [stages[name].reveals for name in asked if name in stages] or texts
    return "; ".join(dict.fromkeys(texts))


def left(lines: Iterable[Line], stages: Mapping[str, Stage]) -> dict[str, list[Sent]]:
    """By site: the kinds of messages it sent with counts and bytes, in order of first occurrence."""
    kinds: dict[str, dict[str, Sent]] = {}
    for line in lines:
        for site, traffic in line["bytes"].items():
            kind = line["question"]
            told = reveals(kind, stages)
            if line.get("masked"):
                told = f"{MASKED}{told}"
            empty = Sent(kind=kind, count=0, bytes=0, reveals=told)
            entry = kinds.setdefault(site, {}).setdefault(kind, empty)
            entry["count"] += 1
            entry["bytes"] += traffic["up"]
    return {site: list(entries.values()) for site, entries in kinds.items()}


def cost(lines: Iterable[Line], sites: Sequence[str]) -> Cost:
    """Rounds, seconds and bytes of a whole study, including one that was stopped and resumed.

    A resumed study journals its replayed rounds again without bytes, so bytes and seconds can be added up.
    If the study was killed before a round's line was written, that round's bytes are unknown; such rounds
    are counted in `rounds_without_bytes`.
    """
    lines = list(lines)
    numbers = {line["round"] for line in lines}
    asked = {line["round"] for line in lines if not line["replayed"]}
    return Cost(
        rounds=len(numbers),
        rounds_without_bytes=len(numbers - asked),
        seconds=sum(line["seconds"] for line in lines),
        bytes_down={site: _bytes(lines, site, "down") for site in sites},
        bytes_up={site: _bytes(lines, site, "up") for site in sites},
    )


def _bytes(lines: list[Line], site: str, direction: Literal["down", "up"]) -> int:
    return sum(line["bytes"][site][direction] for line in lines if site in line["bytes"])


def shapes(reply: Message) -> tuple[str, ...]:
    """One "path: shape" for every array, number and text; uniform collections give their length only.

    >>> from unpooled.protocol.table_messages import Described
    >>> from unpooled.study import Description
    >>> shapes(Described(Description(rows=30, arms={"0": 12, "1": 18}, columns=())))[:3]
    ('description.rows: number', 'description.arms: 2 numbers', 'description.outcome: text')
    """
    return tuple(_shapes(reply, ""))


def _shapes(value: object, path: str) -> Iterator[str]:
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


def _each(parts: Iterable[tuple[object, object]], path: str) -> Iterator[str]:
    for name, part in parts:
        yield from _shapes(part, f"{path}.{name}" if path else str(name))


def _together(value: Mapping[object, object] | Sequence[object]) -> str:
    """The length of a collection of numbers only or of texts only, in words; otherwise empty."""
    parts = list(value.values()) if isinstance(value, Mapping) else list(value)
    for kind, word in (((bool, int, float), "number"), (str, "text")):
        if parts and all(isinstance(part, kind) for part in parts):
            return f"{len(parts)} {word}{'s' if len(parts) > 1 else ''}"
    return ""
