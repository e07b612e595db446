"""`unpooled run`: a study from its file to its results folder."""

from __future__ import annotations

import shlex
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.cli.exit import answering
from unpooled.cli.options import Coordinator, Debug, Json, Patience, Quiet, Resume, StudyFile

if TYPE_CHECKING:
    from unpooled.protocol.engine import RemoteSites
    from unpooled.study import Study


class Way(StrEnum):
    """How a study reaches its sites."""

    in_process = "in-process"
    nvflare = "nvflare"


def run(
    study: StudyFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The results folder, new or empty.")],
    resume: Resume = False,
    seed: Annotated[int | None, typer.Option(help="Instead of the study's own seed.")] = None,
    engine: Annotated[
        Way, typer.Option(help="The study's own tables in this process, or the sites of a consortium.")
    ] = Way.in_process,
    coordinator: Coordinator = Path("consortium/coordinator"),
    patience: Patience = 600.0,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = 0,
) -> None:
    """Fit the study over its sites and write its results."""
    words = ["unpooled", "run", str(study), "--output", str(output), "--resume"]
    words += [] if seed is None else ["--seed", str(seed)]
    if engine is Way.nvflare:
        words += ["--engine", engine, "--coordinator", str(coordinator), "--patience", f"{patience:g}"]
    again = shlex.join(words)
    with answering(as_json=json, debug=debug, resume=again, folder=output):
        from unpooled.cli.text import tell_result
        from unpooled.cli.watch import conduct
        from unpooled.report.results import claimed

        asked = _read(study, seed)
        with claimed(output, resume=resume) as folder:
            sites = (
                _remote(coordinator, patience, show=not (quiet or json)) if engine is Way.nvflare else None
            )
            conduct(asked, folder, resume=resume, show=not (quiet or json), sites=sites)
        tell_result(folder, as_json=json, quiet=quiet)


def _remote(coordinator: Path, patience: float, *, show: bool) -> RemoteSites:
    from unpooled.engines.nvflare.engine import Remote

    return Remote(coordinator, patience, notify=partial(typer.echo, err=True) if show else lambda _: None)


def _read(path: Path, seed: int | None) -> Study:
    from unpooled.study import Study, read_study

    study = read_study(path)
    return study if seed is None else Study(**{**study.model_dump(), "seed": seed})
