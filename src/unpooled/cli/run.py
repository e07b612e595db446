"""`unpooled run`: a study from its file to its results folder."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.cli.answering import answering
from unpooled.cli.options import Debug, Json, Quiet, Resume, StudyFile

if TYPE_CHECKING:
    from unpooled.study import Study


def run(
    study: StudyFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The results folder, new or empty.")],
    resume: Resume = False,
    seed: Annotated[int | None, typer.Option(help="Instead of the study's own seed.")] = None,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = 0,
) -> None:
    """Fit the study over its sites and write its results."""
    words = ["unpooled", "run", str(study), "--output", str(output), "--resume"]
    again = shlex.join(words if seed is None else [*words, "--seed", str(seed)])
    with answering(as_json=json, debug=debug, resume=again, folder=output):
        from unpooled.cli.conduct import conduct
        from unpooled.cli.telling import tell_result
        from unpooled.report.results import claimed

        asked = _read(study, seed)
        with claimed(output, resume=resume) as folder:
            conduct(asked, folder, resume=resume, show=not (quiet or json))
        tell_result(folder, as_json=json, quiet=quiet)


def _read(path: Path, seed: int | None) -> Study:
    from unpooled.study import Study, read_study

    study = read_study(path)
    return study if seed is None else Study(**{**study.model_dump(), "seed": seed})
