"""`unpooled dedupe`: find people who are at several sites, and nothing else."""

from __future__ import annotations

import json as jsonlib
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.cli.errors import reporting_errors
from unpooled.cli.options import Coordinator, Debug, Json, Patience, StudyFile
from unpooled.cli.run import Way, remote

if TYPE_CHECKING:
    from unpooled.coordinator.duplicates import Copies
    from unpooled.study import Study


def dedupe(
    study: StudyFile,
    engine: Annotated[
        Way, typer.Option(help="Use the study's tables in this process, or the sites of a consortium.")
    ] = Way.in_process,
    coordinator: Coordinator = Path("consortium/coordinator"),
    patience: Patience = 600.0,
    json: Json = False,
    debug: Debug = 0,
) -> None:
    """Find people who are at several sites, as the first rounds of a run do, and print how many there are."""
    with reporting_errors(as_json=json, debug=debug):
        from unpooled.errors import StudyError
        from unpooled.methods.method import with_explicit_settings
        from unpooled.study import read_study

        asked = with_explicit_settings(read_study(study))
        if asked.duplicates == "ignore":
            raise StudyError(
                "the study must say how people are identified, and that they are to be counted once",
                found="no `id`" if not asked.columns.identity else 'duplicates = "ignore"',
                remedy='add id = "COLUMN" under [columns], and leave out `duplicates` under [privacy]',
            )
        copies = _found(asked, engine, coordinator, patience, show=not json)
        if json:
            typer.echo(jsonlib.dumps(as_json(copies)))
        else:
            _show(copies, asked)


def _found(study: Study, engine: Way, coordinator: Path, patience: float, *, show: bool) -> Copies:
    from unpooled.coordinator.duplicates import leave_out_copies
    from unpooled.coordinator.rounds import run
    from unpooled.disclosure.limits import NONE
    from unpooled.engines.in_process import InProcess, open_sites

    if engine is Way.nvflare:
        connection = remote(coordinator, patience, show=show).engine(study)
    else:
        connection = nullcontext(InProcess(open_sites(study, None, NONE)))
    with connection as opened:
        found = run(leave_out_copies(study), opened)
    assert found is not None
    return found


def as_json(copies: Copies) -> dict[str, object]:
    return {
        "sites": {
            site: {
                "rows": one.rows,
                "also_elsewhere": one.elsewhere,
                "left_out": one.left_out,
                "repeated": one.counted.repeated,
                "without_key": one.counted.without_key,
                "wrong_check": one.counted.wrong_check,
            }
            for site, one in copies.sites.items()
        },
        "overlaps": [{"sites": list(sites), "people": count} for sites, count in copies.overlaps.items()],
        "share": copies.share,
    }


def _show(copies: Copies, study: Study) -> None:
    from rich.console import Console

    from unpooled.cli.check import plain_table
    from unpooled.coordinator.duplicates import words

    console = Console(markup=False, emoji=False)
    table = plain_table("site", "rows", "also elsewhere", "left out", "repeated", "no key", "wrong digit")
    for site, one in copies.sites.items():
        counted = one.counted
        told = (one.rows, one.elsewhere, one.left_out)
        few = (counted.repeated, counted.without_key, counted.wrong_check)
        table.add_row(site, *map(_written, (*told, *few)))
    console.print(table)
    for sites, count in copies.overlaps.items():
        console.print(f"at {', '.join(sites)}: {count:,} people", highlight=False, soft_wrap=True)
    for sentence in words(copies, study):
        console.print(sentence, highlight=False, soft_wrap=True)


def _written(count: int | None) -> str:
    return "few" if count is None else f"{count:,}"
