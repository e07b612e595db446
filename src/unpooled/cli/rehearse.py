"""`unpooled rehearse`: run a study on one machine exactly as it will run between organisations."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from unpooled.cli.errors import reporting_errors
from unpooled.cli.options import Debug, Json, Patience, Quiet, StudyFile


def rehearse(
    study: StudyFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The results folder, new or empty.")],
    sites: Annotated[int | None, typer.Option(min=1, help="Use only this many of the study's sites.")] = None,
    patience: Patience = 600.0,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = 0,
) -> None:
    """Start a coordinator and all sites on this machine, run the study, and stop them."""
    with reporting_errors(as_json=json, debug=debug, folder=output):
        from unpooled.cli.print_result import print_result
        from unpooled.cli.run import fit_and_write
        from unpooled.engines.nvflare.rehearsal import rehearsal
        from unpooled.errors import StudyError
        from unpooled.report.results import claimed
        from unpooled.study import read_study

        asked = read_study(study)
        sources = dict(list(asked.sites.items())[:sites])
        if not sources:
            raise StudyError(
                "a rehearsal needs the sites' tables",
                found="no sites",
                remedy="add [sites.NAME] to the study",
            )
        show = not (quiet or json)
        with claimed(output) as folder, tempfile.TemporaryDirectory(prefix="unpooled-") as private:
            if show:
                typer.echo(f"starting a coordinator and {len(sources)} sites", err=True)
            with rehearsal(asked, sources, Path(private)) as parties:
                remote = parties.remote(timeout=patience)
                fit_and_write(asked, folder, resume=False, show=show, sites=remote)
        print_result(folder, as_json=json, quiet=quiet)
