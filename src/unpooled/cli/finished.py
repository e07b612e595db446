"""The folder of a finished study: its model, and its study with the tables that it names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unpooled.estimators import Estimator
    from unpooled.study import Source


def finished_model(folder: Path, command: str) -> Estimator:
    """The fitted model; `command` is what needs it."""
    from unpooled.errors import ResultsError
    from unpooled.estimators import load
    from unpooled.report.results import RESULT

    if not (folder / RESULT).is_file():
        raise ResultsError(
            f"{command} needs the folder of a finished study",
            found=f"no {RESULT} in {folder}",
            remedy="give the folder written by `unpooled run study.toml --output …`, or run the study first",
        )
    return load(folder / "model")


def tables_of(folder: Path, model: Estimator, purpose: str) -> dict[str, Source]:
    """Where the tables of the study's sites are, as its study.toml says; `purpose` is what needs them."""
    from unpooled.errors import ResultsError
    from unpooled.study import read_study

    known = read_study(folder / "study.toml").sites
    absent = [site for site in model.result_.sites if site not in known]
    if absent:
        raise ResultsError(
            f"{purpose} needs the tables of all its sites",
            found=f"study.toml in {folder} has no table of: {', '.join(absent)}",
            remedy="if you may hold the tables, add [sites.NAME] with a path; otherwise, run it at each site",
        )
    return known


def refuse_to_overwrite(folder: Path, files: Sequence[str]) -> None:
    """Refuse if any of these files is in the folder."""
    from unpooled.errors import ResultsError

    there = [name for name in files if (folder / name).exists()]
    if there:
        raise ResultsError(
            "existing results are never overwritten",
            found=f"{', '.join(there)} in {folder}",
            remedy="move or delete these files first",
        )
