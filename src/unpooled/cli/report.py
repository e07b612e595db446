"""`unpooled report`: write the report of a finished study again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unpooled.cli.errors import reporting_errors
from unpooled.cli.options import Debug, Quiet


def report(
    results: Annotated[Path, typer.Argument(help="The results folder of a finished study.")],
    quiet: Quiet = False,
    debug: Debug = 0,
) -> None:
    """Write report.html and report.json of a results folder again; the same results give the same files."""
    with reporting_errors(as_json=False, debug=debug):
        from unpooled.coordinator.checkpoint import writing
        from unpooled.estimators import load
        from unpooled.report.folder import read_result, write_report

        result = read_result(results)
        with writing(results):
            written = write_report(load(results / "model"), result, results)
        if not quiet:
            typer.echo(f"Report: {written}")
