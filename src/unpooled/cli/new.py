"""`unpooled new`: write a commented template of a study file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from unpooled.cli.errors import reporting_errors
from unpooled.cli.options import Debug


def new(
    path: Annotated[Path, typer.Argument(metavar="STUDY", help="The file to write, such as study.toml.")],
    debug: Debug = 0,
) -> None:
    """Write a commented template of a study file."""
    with reporting_errors(debug=debug):
        _write(path)
        typer.echo(f"wrote {path}; fill it in, then: unpooled check {shlex.quote(str(path))}")


def _write(path: Path) -> None:
    from unpooled.errors import ResultsError
    from unpooled.study import study_template

    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(study_template())
        return
    except FileExistsError:
        expected, found = "a new study file must not replace another", f"{path} already exists"
        remedy = "choose another name; nothing was changed"
    except OSError:
        expected, found = "the study file must be writable", f"{path} cannot be written"
        remedy = "check that its folder exists and is writable"
    raise ResultsError(expected, found=found, remedy=remedy)
