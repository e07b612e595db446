"""The output of `unpooled site ledger --show LINE`: one reply that left the site, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from unpooled.cli.review import plain
from unpooled.protocol.codec import decode
from unpooled.report.folder import finite
from unpooled.site.ledger import Entry

ROWS, COLUMNS = 12, 6
"""The largest array that is shown whole; of others, the first rows and columns are."""
FIRST = 3


def show_reply(entry: Entry, content: bytes) -> None:
    console = Console(markup=False, emoji=False)
    console.print(plain(f"Line {entry.number}: {entry.kind}"), style="bold", highlight=False)
    facts = _table("", "")
    facts.show_header = False
    for name, text in _facts(entry).items():
        facts.add_row(name, plain(text))
    console.print(facts)
    single = [(place, value) for place, value in leaves(decode(content)) if not _is_table(value)]
    if single:
        console.print("\nSingle values", style="bold", highlight=False)
        table = _table("", "")
        table.show_header = False
        for place, value in single:
            table.add_row(plain(place), plain(_number(value)))
        console.print(table)
    for place, value in leaves(decode(content)):
        if _is_table(value):
            _show_array(console, place, np.asarray(value))


def _facts(entry: Entry) -> dict[str, str]:
    facts = {
        "time": entry.time,
        "study": entry.study,
        "round": f"{entry.round}",
        "question": entry.question,
        "θ": f"{entry.batch}" if entry.batch else "",
        "largest": "" if entry.largest is None else f"{entry.largest:.6g}",
        "people": "" if entry.people is None else f"{entry.people}",
        "reveals": entry.reveals,
        "SHA-256": entry.digest,
    }
    return {name: text for name, text in facts.items() if text}


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every array, number and text of a message, with its place in it."""
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if is_dataclass(value):
        yield from _each(((item.name, getattr(value, item.name)) for item in fields(value)), place)
    elif isinstance(value, dict):
        yield from _each(value.items(), place)
    elif isinstance(value, list | tuple):
        yield from _each(enumerate(value), place)
    elif value is not None:
        yield place, value


def _each(parts: Iterable[tuple[Any, Any]], place: str) -> Iterator[tuple[str, Any]]:
    for name, part in parts:
        yield from leaves(part, f"{place}.{name}" if place else str(name))


def _is_table(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0


def _show_array(console: Console, place: str, array: np.ndarray) -> None:
    """The last axis as columns and all others as rows; a large array by its range and its first rows."""
    shape = " x ".join(map(str, array.shape))
    console.print()
    console.print(plain(f"{place}: {shape}"), style="bold", highlight=False)
    rows = array.reshape(-1, array.shape[-1]) if array.size else np.zeros((0, 0))
    places = list(np.ndindex(array.shape[:-1])) if array.size else []
    large = rows.shape[0] > ROWS or rows.shape[1] > COLUMNS
    if large:
        least, most = np.min(array), np.max(array)
        console.print(f"from {_number(least)} to {_number(most)}; the first numbers are", highlight=False)
    shown = rows[: FIRST if large else ROWS, :COLUMNS]
    table = _table("", *map(str, range(shown.shape[1])))
    for index, row in zip(places, shown, strict=False):
        table.add_row(",".join(map(str, index)), *(_number(value) for value in row))
    console.print(table)


def _number(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic):
        value = value.item()
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def reply_as_json(site: str, entry: Entry, content: bytes) -> dict[str, Any]:
    values = {place: finite(value) for place, value in leaves(decode(content))}
    return {"site": site, "line": entry.model_dump(mode="json"), "reply": values}


def _table(*headings: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number == 0 or not heading else "right", overflow="fold")
    return table
