"""`unpooled simulate`: the paper's data as site files, with the truth beside them."""

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
"""Those of `unpooled.data.simulation`, said again: to import it would make `--help` wait for NumPy."""


def simulate(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(NAMES)}.")],
    out: Annotated[Path, typer.Argument(help="The folder to write, new or empty.")],
    sites: Annotated[int, typer.Option(help="How many sites.")] = 3,
    rows: Annotated[int, typer.Option(help="People at each site.")] = 60,
    seed: Annotated[int, typer.Option(help="The same seed gives the same people.")] = 5,
    test_rows: Annotated[int, typer.Option(help="More people at each site, kept apart for testing.")] = 0,
    json: Json = False,
    debug: Debug = 0,
) -> None:
    """Write simulated site files, the truth about them, and a study file ready to run."""
    with reporting_errors(as_json=json, debug=debug):
        from unpooled.data import simulation

        made = simulation.simulate(name, sites=sites, rows=rows, seed=seed, test_rows=test_rows)
        study = simulation.write(made, out)
        if json:
            truth = {"ate": made.ate, "expected_ate": made.expected_ate}
            typer.echo(jsonlib.dumps({"study": str(study), **truth}))
            return
        typer.echo(
            f"wrote {sites} sites of {rows} people to {out}; their true average effect is {made.ate:.4g}"
        )
        typer.echo(f"next: unpooled run {shlex.quote(str(study))} --output results/")
