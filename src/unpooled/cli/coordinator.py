"""`unpooled coordinator`: create the parties' kits and listen for sites on one port."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.cli.errors import reporting_errors
from unpooled.cli.options import Coordinator, Debug

if TYPE_CHECKING:
    from unpooled.engines.nvflare.processes import Party

app = typer.Typer(
    help="For the coordinator: create kits for all parties and listen for sites.", no_args_is_help=True
)

POLL = 2.0
"""Seconds between checks of which sites are connected."""


@app.command()
def create(
    consortium: Annotated[Path, typer.Argument(help="The consortium file, such as consortium.toml.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A new or empty folder.")] = Path(
        "consortium"
    ),
    debug: Debug = 0,
) -> None:
    """Create certificates and one kit for each party."""
    with reporting_errors(debug=debug):
        from unpooled.engines.nvflare.consortium import read_consortium
        from unpooled.engines.nvflare.kits import create as create_kits

        read = read_consortium(consortium)
        made = create_kits(read, output)
        own = read.coordinator
        typer.echo(
            f"{made.coordinator}  stays here: unpooled coordinator start --coordinator {made.coordinator}"
        )
        for name, kit in made.sites.items():
            typer.echo(f"{kit}  send to '{name}' over a secure channel: it contains a private key")
        typer.echo(
            f"Each site needs an outbound connection, TCP to {own.host}, port {own.port}; no inbound port."
        )
        if own.host != "localhost":
            typer.echo(f"The coordinator will listen on port {own.port} of all addresses of this machine.")


@app.command()
def start(coordinator: Coordinator = Path("consortium/coordinator"), debug: Debug = 0) -> None:
    """Listen for sites and studies until Ctrl-C."""
    with reporting_errors(debug=debug):
        from unpooled.engines.nvflare.consortium import read_identity
        from unpooled.engines.nvflare.engine import members
        from unpooled.engines.nvflare.processes import start_server, wait_until_listening

        sites = members(coordinator)
        identity = read_identity(coordinator / "server")
        server = start_server(coordinator / "server")
        try:
            wait_until_listening("localhost", identity.port, server)
            typer.echo(
                f"Listening at {identity.host}:{identity.port} for {', '.join(sites)}. Press Ctrl-C to stop."
            )
            _watch(coordinator, server)
        except KeyboardInterrupt:
            typer.echo("Stopped.")
        finally:
            server.stop()


def _watch(coordinator: Path, server: Party) -> None:
    """Print a line whenever a site connects or disconnects."""
    from unpooled.engines.nvflare.engine import connected, session
    from unpooled.errors import EngineError

    before: set[str] = set()
    with session(coordinator) as visit:
        while server.alive:
            now = connected(visit)
            for name in sorted(now - before):
                typer.echo(f"{name} is connected.")
            for name in sorted(before - now):
                typer.echo(f"{name} has disconnected.")
            before = now
            time.sleep(POLL)
    raise EngineError(
        "the coordinator must keep running", found="its server has stopped", remedy=f"read {server.log}"
    )


@app.command()
def status(coordinator: Coordinator = Path("consortium/coordinator"), debug: Debug = 0) -> None:
    """Show which sites are connected."""
    with reporting_errors(debug=debug):
        from unpooled.engines.nvflare.engine import connected, members, session

        with session(coordinator) as visit:
            present = connected(visit)
        for name in members(coordinator):
            typer.echo(f"{name}  {'connected' if name in present else 'not connected'}")
