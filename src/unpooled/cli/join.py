"""`unpooled site join` and `site start`: a site that calls its coordinator and waits for questions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.cli.exit import answering
from unpooled.cli.options import Debug, SiteFolderOption

if TYPE_CHECKING:
    from unpooled.study import Source

LOOK = 1.0
"""Seconds between two looks at whether the site still runs."""


def join(
    kit: Annotated[Path, typer.Argument(help="The archive that the coordinator sent, such as north.zip.")],
    data: Annotated[str, typer.Option(help="The site's table: a CSV or Parquet file, or a database URL.")],
    query: Annotated[str | None, typer.Option(help="With a database: what to select.")] = None,
    folder: Annotated[Path | None, typer.Option(help="The site's own folder; else the site's name.")] = None,
    debug: Debug = 0,
) -> None:
    """Take up the kit, call the coordinator, and wait for approved studies, until Ctrl-C."""
    with answering(debug=debug):
        from unpooled.engines.nvflare.kits import KIT, read_badge, unpack
        from unpooled.site.folder import SiteFolder

        own = (folder or Path(kit.stem)).absolute()
        _require_new(own)
        source = _source(data, query)
        unpacked = unpack(kit, own / KIT)
        SiteFolder.create(own, read_badge(unpacked).name, source)
        _serve(own)


def start(folder: SiteFolderOption = Path("."), debug: Debug = 0) -> None:
    """Call the coordinator again, from the folder that `join` made."""
    with answering(debug=debug):
        _serve(folder.absolute())


def _require_new(folder: Path) -> None:
    from unpooled.errors import ResultsError

    if (folder / "site.toml").exists():
        raise ResultsError(
            "a kit is taken up once",
            found=f"{folder} is a site's folder already",
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
            raise StudyError(
                "the site's table must be there", found=f"no file {data}", remedy="correct --data"
            )
        return Source(path=str(Path(data).absolute()), query=query)
    except ValidationError as error:
        raise explain(error) from None


def _serve(folder: Path) -> None:
    from unpooled.engines.nvflare.certificates import check, greet
    from unpooled.engines.nvflare.kits import KIT, read_badge
    from unpooled.engines.nvflare.processes import start_site
    from unpooled.errors import EngineError
    from unpooled.site.folder import SiteFolder

    own, kit = SiteFolder.read(folder), folder / KIT
    badge = read_badge(kit)
    check(kit)
    greet(kit, badge.host, badge.port)
    site = start_site(kit)
    try:
        typer.echo(f"'{own.name}' has called {badge.host}:{badge.port}. Ctrl-C leaves.")
        typer.echo(f"Nothing is answered but what you approve: unpooled site review STUDY --folder {folder}")
        while site.alive:
            time.sleep(LOOK)
        raise EngineError("the site must run", found="its process has ended", remedy=f"read {site.log}")
    except KeyboardInterrupt:
        typer.echo("Left.")
    finally:
        site.stop()
