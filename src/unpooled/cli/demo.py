"""`unpooled demo`: a complete study of real data."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.cli.errors import reporting_errors
from unpooled.cli.options import Debug, Json, Quiet, Resume

if TYPE_CHECKING:
    from unpooled.data.nhefs import Nhefs
    from unpooled.study import Study


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The results folder, new or empty.")] = Path(
        "results-demo"
    ),
    resume: Resume = False,
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough",
            help="Fit both kinds of outcome function, as `run` does, and weight them by how well they "
            "predict held-out people. Takes several minutes.",
        ),
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = 0,
) -> None:
    """Estimate the effect of quitting smoking on weight: real data, in four regions that share no rows."""
    words = ["unpooled", "demo", "--output", str(output), "--resume"]
    again = shlex.join([*words, "--thorough"] if thorough else words)
    with reporting_errors(as_json=json, debug=debug, resume=again, folder=output):
        from unpooled.cli.print_result import print_result
        from unpooled.cli.run import fit_and_write
        from unpooled.data.nhefs import PUBLISHED, nhefs
        from unpooled.report.results import claimed

        data = nhefs()
        with claimed(output, resume=resume) as folder:
            study = write_sites(data, folder, thorough=thorough)
            if not (quiet or json):
                _introduce(data)
            fit_and_write(study, folder, resume=resume, show=not (quiet or json))
        print_result(folder, as_json=json, quiet=quiet)
        if not json:
            typer.echo(f"Published: {PUBLISHED}.")


def write_sites(data: Nhefs, folder: Path, *, thorough: bool) -> Study:
    """Write one file per region and return the study of them, which `unpooled run` can repeat."""
    from unpooled.coordinator.checkpoint import writing

    tables = folder / "data"
    with writing(folder):
        tables.mkdir(exist_ok=True)
        for site, frame in data.sites.items():
            frame.to_csv(tables / f"{site}.csv", index=False)
    paths = {site: str((tables / f"{site}.csv").absolute()) for site in data.sites}
    method = {"name": "fedci"} if thorough else {"name": "fedci", "structure": "projection"}
    return data.study.with_changes(method=method, diagnostics=True, sites=paths)


def _introduce(data: Nhefs) -> None:
    people = sum(len(frame) for frame in data.sites.values())
    typer.echo(
        f"NHEFS: {people:,} people who smoked in 1971. Did quitting by 1982 make them gain weight?\n"
        f"Four sites: regions of birth. Excluded: {data.without_outcome} people without the outcome and "
        f"{data.without_region} without a region."
    )
