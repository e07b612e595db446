"""The output of `unpooled site ledger`: the lines of each study, and what its replies reveal."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table

from unpooled.cli.progress import readable
from unpooled.cli.review import SHORT, plain
from unpooled.site.ledger import Entry, Verified

_LEFT = ("time (UTC)", "question", "reveals")


def show_ledger(site: str, lines: list[Entry]) -> None:
    console = _console()
    if not lines:
        console.print(f"Nothing has left site '{site}' yet.", style="bold", highlight=False)
        return
    for study, group in groupby(lines, key=lambda one: one.study):
        own = list(group)
        console.print(plain(f"Study {study[:SHORT]}, from {own[0].time} to {own[-1].time}"), highlight=False)
        console.print(_listed(own))
        console.print()
    console.print(_revealed(lines))
    console.print()
    console.print(plain(_total(site, lines)), style="bold", highlight=False, soft_wrap=True)


def _listed(lines: list[Entry]) -> Table:
    table = _table("line", "time (UTC)", "round", "θ", "largest", "people", "bytes", "question")
    for one in lines:
        question = f"{one.question} (refused)" if one.refused else one.question
        largest = "" if one.largest is None else f"{one.largest:.3g}"
        numbers = (one.batch or "", largest, "" if one.people is None else one.people)
        cells = (one.number, one.time[5:16].replace("T", " "), one.round, *numbers, readable(one.bytes))
        table.add_row(*(plain(cell) for cell in (*cells, question)))
    return table


def _revealed(lines: list[Entry]) -> Table:
    """What the replies to every kind of question reveal."""
    table = _table("question", "reveals")
    table.columns[0].ratio, table.columns[1].ratio, table.expand = 1, 2, True
    for question, reveals in dict.fromkeys((one.question, one.reveals) for one in lines if not one.refused):
        table.add_row(plain(question), plain(reveals))
    return table


def _total(site: str, lines: list[Entry]) -> str:
    studies = len({one.study for one in lines})
    return (
        f"{_count(len(lines), 'reply', 'replies')} to {_count(studies, 'study', 'studies')}, "
        f"{readable(sum(one.bytes for one in lines))} in all, left site '{site}'."
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def ledger_as_json(site: str, lines: list[Entry]) -> dict[str, Any]:
    return {
        "site": site,
        "replies": len(lines),
        "bytes": sum(one.bytes for one in lines),
        "lines": [one.model_dump(mode="json") for one in lines],
    }


def show_verified(found: Verified) -> None:
    between = f", from {found.first} to {found.last}" if found.lines else ""
    verified = f"{_count(found.lines, 'line', 'lines')} verified{between}."
    _console().print(plain(verified), style="bold", highlight=False, soft_wrap=True)


def _console() -> Console:
    return Console(markup=False, emoji=False)  # a column may be named 'bmi [kg/m2]'


def _table(*headings: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        wide = heading in ("question", "reveals")
        justify = "left" if heading in _LEFT else "right"
        table.add_column(heading, justify=justify, no_wrap=not wide, overflow="fold")
    return table
