"""`unpooled new`: a commented study file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unpooled.cli.answering import answering
from unpooled.cli.options import Debug


def new(
    path: Annotated[Path, typer.Argument(metavar="STUDY", help="The file to write, such as study.toml.")],
    debug: Debug = 0,
) -> None:
    """Write a commented study file to start from."""
    with answering(debug=debug):
        _write(path)
        typer.echo(f"wrote {path}; fill it in, then: unpooled check {path}")


def _write(path: Path) -> None:
    from unpooled.errors import ResultsError
    from unpooled.study import study_template

    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(study_template())
        return
    except FileExistsError:
        found, remedy = f"{path} is already there", "choose another name; nothing was changed"
    except OSError:
        found, remedy = f"{path} cannot be written", "check that its folder exists and may be written"
    raise ResultsError("a new study file must not be in the way of another", found=found, remedy=remedy)
