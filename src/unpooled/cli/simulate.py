"""`unpooled simulate`: write simulated data of the papers as site files, with the true effects."""

from __future__ import annotations

import json as jsonlib
import shlex
from pathlib import Path
from typing import Annotated

import typer

from unpooled.cli.errors import reporting_errors
from unpooled.cli.options import Debug, Json

NAMES = (
    *("fedci-data1", "fedci-data2", "fedci-binary", "fedci-count"),
    *("causalrff-same", "causalrff-diff", "causalrff-delta"),
    *("causalrff-large-same", "causalrff-large-diff", "causalrff-continuous"),
    "causalfi",
)
"""Repeated from `unpooled.data.simulation`, because importing it would slow down `--help`."""


def simulate(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(NAMES)}.")],
    out: Annotated[Path, typer.Argument(help="The folder to write, new or empty.")],
    sites: Annotated[int, typer.Option(help="Number of sites.")] = 3,
    rows: Annotated[int, typer.Option(help="Number of people at each site.")] = 60,
    seed: Annotated[int, typer.Option(help="The same seed gives the same data.")] = 5,
    test_rows: Annotated[
        int, typer.Option(help="Number of additional people at each site, held out for testing.")
    ] = 0,
    json: Json = False,
    debug: Debug = 0,
) -> None:
    """Write simulated site files, their true effects, and a study file that is ready to run."""
    with reporting_errors(as_json=json, debug=debug):
        from unpooled.data import simulation

        made = simulation.simulate(name, sites=sites, rows=rows, seed=seed, test_rows=test_rows)
        study = simulation.write(made, out)
        if json:
            truth = {"ate": made.ate, "expected_ate": made.expected_ate}
            typer.echo(jsonlib.dumps({"study": str(study), **truth}))
            return
        typer.echo(
            f"wrote {sites} sites of {rows} people to {out}; the true average effect is {made.ate:.4g}"
        )
        typer.echo(f"next: unpooled run {shlex.quote(str(study))} --output results/")
