"""`unpooled site join` and `site start`: make a site's keys, connect to its coordinator, answer questions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.cli.errors import reporting_errors
from unpooled.cli.options import Debug, SiteFolderOption

if TYPE_CHECKING:
    from unpooled.site.folder import SiteFolder
    from unpooled.study import Source

POLL = 1.0
"""Seconds between checks of whether the site is still running."""


def join(
    invitation: Annotated[
        Path, typer.Argument(help="The invitation from the coordinator, such as north.json.")
    ],
    data: Annotated[str, typer.Option(help="The site's table: a CSV or Parquet file, or a database URL.")],
    query: Annotated[
        str | None, typer.Option(help="For a database: the SQL query that selects the table.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="The site's own folder; by default named after the site.")
    ] = None,
    debug: Debug = 0,
) -> None:
    """Make the site's folder and its keys, and a request to be admitted, which goes to the coordinator."""
    with reporting_errors(debug=debug):
        from unpooled.engines.nvflare.admission import Invitation, read_file, request
        from unpooled.site.fingerprint import fingerprint
        from unpooled.site.folder import SiteFolder
        from unpooled.site.identity import public_identity

        invited = read_file(invitation, Invitation)
        name = invited.site.name
        place = (folder or Path(name)).absolute()
        _require_new(place)
        own = SiteFolder.create(place, name, _source(data, query))
        typer.echo(f"{request(invited, own)}  send to the coordinator; it is no secret")
        typer.echo(f"fingerprint of '{name}': {fingerprint(public_identity(own.identity))}")
        typer.echo("Read these words to the coordinator and to the other custodians by telephone.")
        then = f"unpooled site start --folder {place} --admission {name}.admission.json"
        typer.echo(f"When the coordinator has sent the admission: {then}")


def start(
    folder: SiteFolderOption = Path("."),
    admission: Annotated[
        Path | None,
        typer.Option(help="The admission from the coordinator; only at the first start after `join`."),
    ] = None,
    debug: Debug = 0,
) -> None:
    """Connect to the coordinator, and answer approved studies until Ctrl-C."""
    with reporting_errors(debug=debug):
        from unpooled.engines.nvflare.admission import Admission, accept, read_file
        from unpooled.site.folder import SiteFolder

        own = SiteFolder.read(folder)
        if admission is not None:
            accept(read_file(admission, Admission), own)
        _serve(own)


def _require_new(folder: Path) -> None:
    from unpooled.errors import ResultsError

    if (folder / "site.toml").exists():
        raise ResultsError(
            "a site can join only once",
            found=f"{folder} is already a site's folder",
            remedy=f"unpooled site start --folder {folder}",
        )


def _source(data: str, query: str | None) -> Source:
    from pydantic import ValidationError

    from unpooled.errors import StudyError
    from unpooled.study import Source
    from unpooled.study.study import explain

    try:
        if "://" in data:
            return Source(url=data, query=query)
        if not Path(data).is_file():
            raise StudyError("the site's table must exist", found=f"no file {data}", remedy="correct --data")
        return Source(path=str(Path(data).absolute()), query=query)
    except ValidationError as error:
        raise explain(error) from None


def _serve(own: SiteFolder) -> None:
    from unpooled.engines.nvflare.admission import require_admitted
    from unpooled.engines.nvflare.certificates import check_connection
    from unpooled.engines.nvflare.consortium import read_identity
    from unpooled.engines.nvflare.processes import start_site
    from unpooled.errors import EngineError

    kit = require_admitted(own)
    identity = read_identity(kit)
    check_connection(kit, identity.host, identity.port)
    site = start_site(kit)
    try:
        typer.echo(
            f"'{own.name}' is connected to {identity.host}:{identity.port}. Press Ctrl-C to disconnect."
        )
        typer.echo(
            f"It answers only studies that you approve: unpooled site review STUDY --folder {own.folder}"
        )
        while site.alive and not site.refused:
            time.sleep(POLL)
        if site.refused:
            raise EngineError(
                f"'{own.name}' may be connected only once",
                found="it is connected already, from another folder or another machine",
                remedy="stop the other one; if this is unexpected, somebody else may have its key: tell the "
                "coordinator. After a broken connection, try again in a minute",
            )
        raise EngineError(
            "the site must keep running", found="its process has stopped", remedy=f"read {site.log}"
        )
    except KeyboardInterrupt:
        typer.echo("Disconnected.")
    finally:
        site.stop()
