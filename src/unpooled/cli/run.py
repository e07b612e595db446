"""`unpooled run`: fit the study of a study file and write its results folder."""

from __future__ import annotations

import shlex
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.cli.errors import reporting_errors
from unpooled.cli.options import Coordinator, Debug, Json, Patience, Quiet, Resume, StudyFile

if TYPE_CHECKING:
    from unpooled.estimators import Estimator
    from unpooled.protocol.engine import RemoteSites
    from unpooled.study import Study


class Way(StrEnum):
    """How the coordinator reaches the sites."""

    in_process = "in-process"
    nvflare = "nvflare"


def run(
    study: StudyFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The results folder, new or empty.")],
    resume: Resume = False,
    seed: Annotated[int | None, typer.Option(help="Use this seed instead of the study's.")] = None,
    engine: Annotated[
        Way, typer.Option(help="Use the study's tables in this process, or the sites of a consortium.")
    ] = Way.in_process,
    coordinator: Coordinator = Path("consortium/coordinator"),
    patience: Patience = 600.0,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = 0,
) -> None:
    """Fit a study across its sites and write the results."""
    words = ["unpooled", "run", str(study), "--output", str(output), "--resume"]
    words += [] if seed is None else ["--seed", str(seed)]
    if engine is Way.nvflare:
        words += ["--engine", engine, "--coordinator", str(coordinator), "--patience", f"{patience:g}"]
    again = shlex.join(words)
    with reporting_errors(as_json=json, debug=debug, resume=again, folder=output):
        from unpooled.cli.print_result import print_result
        from unpooled.report.results import claimed

        asked = _read(study, seed)
        with claimed(output, resume=resume) as folder:
            sites = remote(coordinator, patience, show=not (quiet or json)) if engine is Way.nvflare else None
            fit_and_write(asked, folder, resume=resume, show=not (quiet or json), sites=sites)
        print_result(folder, as_json=json, quiet=quiet)


def fit_and_write(
    study: Study, folder: Path, *, resume: bool, show: bool, sites: RemoteSites | None = None
) -> Estimator:
    """Fit, with a checkpoint after every round, and write the results."""
    from unpooled.cli.progress import ProgressDisplay
    from unpooled.coordinator.checkpoint import earlier
    from unpooled.coordinator.run import LOST_SITES, ROUNDS_BEFORE_FITTING
    from unpooled.estimators import of_study
    from unpooled.methods.diagnostics.rounds import MOST_ROUNDS
    from unpooled.methods.method import find, settings_of
    from unpooled.report.results import CHECKPOINT, JOURNAL, write_results

    model = of_study(study)
    method = find(study.method.name)
    rounds = method.most_rounds(settings_of(method, study.method.settings))
    bound = ROUNDS_BEFORE_FITTING + max(rounds, MOST_ROUNDS if study.diagnostics else 0)
    checkpoint, journal = folder / CHECKPOINT, folder / JOURNAL
    with ProgressDisplay(most_rounds=bound, show=show) as watching:
        try:
            model.fit(study, sites, watch=watching, checkpoint=checkpoint, resume=resume, journal=journal)
        except Exception:
            if not (watching.fitting or resume):  # nothing to resume: leave the folder empty
                for one in (checkpoint, journal, folder / LOST_SITES, *earlier(checkpoint)):
                    one.unlink(missing_ok=True)
            raise
    write_results(model, folder)
    return model


def remote(coordinator: Path, patience: float, *, show: bool) -> RemoteSites:
    from unpooled.engines.nvflare.engine import Remote

    return Remote(coordinator, patience, notify=partial(typer.echo, err=True) if show else lambda _: None)


def _read(path: Path, seed: int | None) -> Study:
    from unpooled.study import read_study

    study = read_study(path)
    return study if seed is None else study.with_changes(seed=seed)
