"""The `unpooled` command."""

from __future__ import annotations

import io
import sys
import warnings
from typing import Annotated

import typer

from unpooled.cli.audit import audit
from unpooled.cli.benchmark import app as benchmark
from unpooled.cli.check import check
from unpooled.cli.coordinator import app as coordinator
from unpooled.cli.dedupe import dedupe
from unpooled.cli.demo import demo
from unpooled.cli.new import new
from unpooled.cli.plan import plan
from unpooled.cli.policy import policy
from unpooled.cli.refute import refute
from unpooled.cli.rehearse import rehearse
from unpooled.cli.report import report
from unpooled.cli.run import run
from unpooled.cli.sensitivity import sensitivity
from unpooled.cli.simulate import simulate
from unpooled.cli.site import app as site
from unpooled.cli.transport import transport
from unpooled.errors import FailedCheckWarning

app = typer.Typer(
    name="unpooled",
    help="Estimate causal effects from data that cannot be pooled.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they show local variables, which may hold rows
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    demo, new, check, plan, dedupe, run, report, audit, refute, policy, transport, sensitivity, rehearse,
    simulate,
):  # fmt: skip
    app.command()(command)
for group, name in ((coordinator, "coordinator"), (site, "site"), (benchmark, "benchmark")):
    app.add_typer(group, name=name)


def _version(wanted: bool) -> None:
    if wanted:
        from unpooled import __version__

        typer.echo(f"unpooled {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Estimate causal effects from data that cannot be pooled."""


def main() -> None:
    """The entry point of the `unpooled` script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # the terminal's encoding may lack some characters
    warnings.simplefilter("ignore", FailedCheckWarning)  # `print_result` says which checks failed
    app()
