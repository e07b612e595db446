"""`unpooled coordinator`: kits for everybody, and the one port that sites call."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.cli.exit import answering
from unpooled.cli.options import Coordinator, Debug

if TYPE_CHECKING:
    from unpooled.engines.nvflare.processes import Party

app = typer.Typer(help="Bring organisations together: kits, and the port they call.", no_args_is_help=True)

LOOK = 2.0
"""Seconds between two looks at who is connected."""


@app.command()
def create(
    consortium: Annotated[Path, typer.Argument(help="Who takes part, such as consortium.toml.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A new or empty folder.")] = Path(
        "consortium"
    ),
    debug: Debug = 0,
) -> None:
    """Make certificates and one kit for each party."""
    with answering(debug=debug):
        from unpooled.engines.nvflare.consortium import read_consortium
        from unpooled.engines.nvflare.kits import create as make

        asked = read_consortium(consortium)
        made = make(asked, output)
        at = asked.coordinator
        typer.echo(
            f"{made.coordinator}  stays here: unpooled coordinator start --coordinator {made.coordinator}"
        )
        for name, kit in made.sites.items():
            typer.echo(f"{kit}  goes to '{name}', by a way that nobody else reads: it holds a private key")
        typer.echo(
            f"A site needs one outbound connection: TCP to {at.host}, port {at.port}. No inbound port."
        )
        if at.host != "localhost":
            typer.echo(f"Here, port {at.port} is opened on every address of this machine.")


@app.command()
def start(coordinator: Coordinator = Path("consortium/coordinator"), debug: Debug = 0) -> None:
    """Listen for sites and for studies, until Ctrl-C."""
    with answering(debug=debug):
        from unpooled.engines.nvflare.kits import read_badge
        from unpooled.engines.nvflare.processes import start_server, wait_until_listening
        from unpooled.engines.nvflare.session import members

        everybody = members(coordinator)
        badge = read_badge(coordinator / "server")
        server = start_server(coordinator / "server")
        try:
            wait_until_listening("localhost", badge.port, server)
            typer.echo(f"Listening at {badge.host}:{badge.port} for {', '.join(everybody)}. Ctrl-C ends it.")
            _watch(coordinator, server)
        except KeyboardInterrupt:
            typer.echo("Stopped.")
        finally:
            server.stop()


def _watch(coordinator: Path, server: Party) -> None:
    """A line for every site that comes or goes."""
    from unpooled.engines.nvflare.session import connected, session
    from unpooled.errors import EngineError

    before: set[str] = set()
    with session(coordinator) as visit:
        while server.alive:
            now = connected(visit)
            for name in sorted(now - before):
                typer.echo(f"{name} is connected.")
            for name in sorted(before - now):
                typer.echo(f"{name} has gone.")
            before = now
            time.sleep(LOOK)
    raise EngineError("the coordinator must run", found="its server has ended", remedy=f"read {server.log}")


@app.command()
def status(coordinator: Coordinator = Path("consortium/coordinator"), debug: Debug = 0) -> None:
    """Who is connected."""
    with answering(debug=debug):
        from unpooled.engines.nvflare.session import connected, members, session

        with session(coordinator) as visit:
            there = connected(visit)
        for name in members(coordinator):
            typer.echo(f"{name}  {'connected' if name in there else 'not connected'}")
