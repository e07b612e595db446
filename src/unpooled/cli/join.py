"""`unpooled site join` and `site start`: connect a site to its coordinator and answer questions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.cli.errors import reporting_errors
from unpooled.cli.options import Debug, SiteFolderOption

if TYPE_CHECKING:
    from unpooled.study import Source

POLL = 1.0
"""Seconds between checks of whether the site is still running."""


def join(
    kit: Annotated[Path, typer.Argument(help="The kit from the coordinator, such as north.zip.")],
    data: Annotated[str, typer.Option(help="The site's table: a CSV or Parquet file, or a database URL.")],
    query: Annotated[
        str | None, typer.Option(help="For a database: the SQL query that selects the table.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="The site's own folder; by default named after the kit.")
    ] = None,
    debug: Debug = 0,
) -> None:
    """Unpack the kit, connect to the coordinator, and answer approved studies until Ctrl-C."""
    with reporting_errors(debug=debug):
        from unpooled.engines.nvflare.consortium import read_identity
        from unpooled.engines.nvflare.kits import KIT, unpack
        from unpooled.site.folder import SiteFolder

        own = (folder or Path(kit.stem)).absolute()
        _require_new(own)
        source = _source(data, query)
        unpacked = unpack(kit, own / KIT)
        SiteFolder.create(own, read_identity(unpacked).name, source)
        _serve(own)


def start(folder: SiteFolderOption = Path("."), debug: Debug = 0) -> None:
    """Connect to the coordinator again, from the folder made by `join`."""
    with reporting_errors(debug=debug):
        _serve(folder.absolute())


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


def _serve(folder: Path) -> None:
    from unpooled.engines.nvflare.certificates import check_connection
    from unpooled.engines.nvflare.consortium import read_identity
    from unpooled.engines.nvflare.kits import KIT
    from unpooled.engines.nvflare.processes import start_site
    from unpooled.errors import EngineError
    from unpooled.site.folder import SiteFolder

    own, kit = SiteFolder.read(folder), folder / KIT
    identity = read_identity(kit)
    check_connection(kit, identity.host, identity.port)
    site = start_site(kit)
    try:
        typer.echo(
            f"'{own.name}' is connected to {identity.host}:{identity.port}. Press Ctrl-C to disconnect."
        )
        typer.echo(f"It answers only studies that you approve: unpooled site review STUDY --folder {folder}")
        while site.alive:
            time.sleep(POLL)
        raise EngineError(
            "the site must keep running", found="its process has stopped", remedy=f"read {site.log}"
        )
    except KeyboardInterrupt:
        typer.echo("Disconnected.")
    finally:
        site.stop()
