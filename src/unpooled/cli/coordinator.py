"""`unpooled coordinator`: invite and admit sites, and listen for them on one port."""

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
    help="For the coordinator: invite and admit sites, and listen for them.", no_args_is_help=True
)

POLL = 2.0
"""Seconds between checks of which sites are connected."""
_SECOND = (
    "{} is connected already; a second process with its key was refused. If its custodian did not start it, "
    "somebody else may have its key."
)


@app.command()
def create(
    consortium: Annotated[Path, typer.Argument(help="The consortium file, such as consortium.toml.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A new or empty folder.")] = Path(
        "consortium"
    ),
    debug: Debug = 0,
) -> None:
    """Create the consortium's authority, the coordinator's own keys, and an invitation for each site."""
    with reporting_errors(debug=debug):
        from unpooled.engines.nvflare.consortium import read_consortium
        from unpooled.engines.nvflare.kits import create as create_folder

        read = read_consortium(consortium)
        made = create_folder(read, output)
        own = read.coordinator
        typer.echo(
            f"{made.coordinator}  stays here: unpooled coordinator start --coordinator {made.coordinator}"
        )
        for name, invitation in made.invitations.items():
            typer.echo(f"{invitation}  send to '{name}'; it is no secret")
        typer.echo(
            "Each site answers with a request: unpooled coordinator admit NAME.request.json"
            f" --coordinator {made.coordinator}"
        )
        typer.echo(
            f"Each site needs an outbound connection, TCP to {own.host}, port {own.port}; no inbound port."
        )
        if own.host != "localhost":
            typer.echo(f"The coordinator will listen on port {own.port} of all addresses of this machine.")


@app.command()
def admit(
    requests: Annotated[list[Path], typer.Argument(help="Requests of sites, such as north.request.json.")],
    coordinator: Coordinator = Path("consortium/coordinator"),
    replace: Annotated[
        bool, typer.Option("--replace", help="Admit a site again that now has other keys.")
    ] = False,
    debug: Debug = 0,
) -> None:
    """Sign the requests of sites, and add the sites to the list for all custodians."""
    with reporting_errors(debug=debug):
        from unpooled.engines.nvflare.admission import Request, read_file
        from unpooled.engines.nvflare.engine import members
        from unpooled.engines.nvflare.kits import admit as sign
        from unpooled.engines.nvflare.kits import admitted_sites, sites_path
        from unpooled.site.fingerprint import fingerprint

        for path in requests:
            made = sign(coordinator, read_file(path, Request), replace=replace)
            typer.echo(f"fingerprint of '{made.name}': {fingerprint(made.identity)}")
            typer.echo("Telephone the custodian, who reads out the same words; only then send the admission.")
            typer.echo(f"{made.path}  send to '{made.name}'; it is no secret")
        missing = [name for name in members(coordinator) if name not in admitted_sites(coordinator)]
        typer.echo(
            f"{sites_path(coordinator)}  "
            + (f"not complete yet, without {', '.join(missing)}" if missing else "send to every custodian")
        )


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
    from unpooled.engines.nvflare.configuration import SECOND
    from unpooled.engines.nvflare.engine import connected, session
    from unpooled.errors import EngineError

    before: set[str] = set()
    refused = server.folder / SECOND
    seen = refused.stat().st_size if refused.exists() else 0
    with session(coordinator) as visit:
        while server.alive:
            if refused.exists():
                with refused.open(encoding="utf-8") as file:
                    file.seek(seen)
                    for line in file:
                        typer.echo(_SECOND.format(line.split()[-1]))
                    seen = file.tell()
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

        sites = members(coordinator)
        with session(coordinator) as visit:
            present = connected(visit)
        for name in sites:
            typer.echo(f"{name}  {'connected' if name in present else 'not connected'}")
