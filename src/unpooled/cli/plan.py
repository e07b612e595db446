"""`unpooled plan`: the rounds, megabytes and minutes that a study is expected to take."""

from __future__ import annotations

import json as jsonlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.cli.errors import reporting_errors
from unpooled.cli.options import Debug, Json, StudyFile
from unpooled.cli.run import Way

if TYPE_CHECKING:
    from rich.table import Table

    from unpooled.diagnostics.expected_cost import ExpectedCost
    from unpooled.diagnostics.stand_ins import Size
    from unpooled.study import Study


def plan(
    study: StudyFile,
    sites: Annotated[int | None, typer.Option(help="Number of sites, of a study without tables.")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows of the largest site, instead of reading it.")] = None,
    features: Annotated[
        int | None, typer.Option(help="Columns of the covariates after coding, instead of reading them.")
    ] = None,
    engine: Annotated[
        Way, typer.Option(help="Tables in one process, or sites of a consortium with default limits.")
    ] = Way.in_process,
    bandwidth: Annotated[
        float, typer.Option(min=0.001, help="Megabits per second of every site and of the coordinator.")
    ] = 100.0,
    detail: Annotated[bool, typer.Option("--detail", help="Show every stage.")] = False,
    json: Json = False,
    debug: Debug = 0,
) -> None:
    """Tell the rounds, megabytes and minutes that a study is expected to take; nothing is fitted."""
    with reporting_errors(as_json=json, debug=debug):
        from unpooled.diagnostics.expected_cost import expected_cost
        from unpooled.study import read_study

        asked = read_study(study)
        size = _size(asked, sites, rows, features)
        found = expected_cost(asked, size=size, engine=engine.value, bandwidth=bandwidth)
        if json:
            typer.echo(jsonlib.dumps(as_json(found)))
        else:
            _show(found, detail=detail)


def _size(study: Study, sites: int | None, rows: int | None, features: int | None) -> Size | None:
    """The size of a study as the options give it; None if its tables are to be read."""
    from unpooled.diagnostics.stand_ins import Size
    from unpooled.errors import StudyError

    if sites is None and rows is None and features is None:
        if study.sites:
            return None
        raise StudyError(
            "a plan needs the size of the study",
            found="a study file that names no tables",
            remedy="add --sites, --rows and --features, or write [sites.NAME] sections in the study",
        )
    if rows is None:
        raise StudyError(
            "the size of a study needs its rows",
            found="--sites or --features without --rows",
            remedy="add --rows, the rows of the largest site, or leave all out to read the study's tables",
        )
    return Size(max(len(study.sites), 1) if sites is None else sites, rows, features)


def as_json(found: ExpectedCost) -> dict[str, object]:
    both = (found, found.longest or found)
    return {
        "method": found.method,
        "sites": found.sites,
        "rows": found.rows,
        "features": found.features,
        **{name: [getattr(one, name) for one in both] for name in ("rounds", "bytes_out", "bytes_in")},
        "seconds": [one.seconds for one in both],
        "minutes": [one.minutes for one in both],
        "stages": [[asdict(stage) for stage in one.stages] for one in both],
        "notes": list(found.notes),
    }


WORDS = {
    "sites": "computing at the sites",
    "coordinator": "computing at the coordinator",
    "compiling": "compiling, once",
    "waiting": "waiting for rounds",
    "sending": "sending",
}


def _show(found: ExpectedCost, *, detail: bool) -> None:
    from rich.console import Console

    console = Console(markup=False, emoji=False)
    ends = [found] if found.longest is None else [found, found.longest]
    size = f"{found.sites:,} sites of up to {found.rows:,} rows, {found.features:,} features"
    console.print(f"{found.method}: {size}", style="bold", highlight=False)
    console.print(_totals(ends))
    last = ends[-1]
    share = last.seconds[last.dominates] / sum(last.seconds.values())
    console.print(f"\n{WORDS[last.dominates]} takes most of the time: {share:.0%}", highlight=False)
    if len(ends) > 1:
        console.print("The data decide where in these ranges the fit ends.", highlight=False)
    for note in found.notes:
        console.print(f"under the default limits the study would run with {note}", soft_wrap=True)
    if detail:
        console.print("\nBy stage" + (", at most" if len(ends) > 1 else ""), style="bold")
        console.print(_stages(last))
    console.print(
        "\nRounds and MB are right to about 30 %, minutes to a factor of two or three.", style="dim"
    )


TOTALS = ("rounds", "MB out of each site", "MB into each site", "minutes")


def ends_of(found: ExpectedCost, *, hours: bool = False) -> tuple[str, ...]:
    """The shortest and the longest course in words: rounds, MB out of and into a site, minutes (or hours)."""
    ends = [found, found.longest or found]
    sizes = ([one.bytes_out / 1e6 for one in ends], [one.bytes_in / 1e6 for one in ends])
    times = [one.minutes / (60.0 if hours else 1.0) for one in ends]
    rounds = _range([f"{one.rounds:,}" for one in ends])
    return (rounds, *(_range([_digits(value) for value in values]) for values in (*sizes, times)))


def _totals(ends: list[ExpectedCost]) -> Table:
    from unpooled.cli.check import plain_table

    table = plain_table("", "expected")
    for words, cell in zip(TOTALS, ends_of(ends[0]), strict=True):
        table.add_row(words, cell)
    for part, words in WORDS.items():
        if any(one.seconds[part] for one in ends):
            table.add_row(f"  {words}", _range([_digits(one.seconds[part] / 60.0) for one in ends]))
    return table


def _stages(found: ExpectedCost) -> Table:
    from unpooled.cli.check import plain_table

    table = plain_table("stage", "rounds", "θ", "MB out", "MB in", "seconds at a site")
    for one in found.stages:
        sizes = (one.bytes_out / 1e6, one.bytes_in / 1e6, one.seconds)
        table.add_row(one.stage, f"{one.asked:,}", f"{one.thetas:,}", *map(_digits, sizes))
    return table


def _range(values: list[str]) -> str:
    return " to ".join(dict.fromkeys(values))


def _digits(value: float) -> str:
    """Two digits, or all of a whole number.

    >>> [_digits(value) for value in (0.01234, 1.26, 12.6, 12345.6)]
    ['0.012', '1.3', '13', '12,346']
    """
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.2g}"
