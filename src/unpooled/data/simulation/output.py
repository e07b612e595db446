"""A simulation as a folder: one file per site, the truth, and a study file ready to run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from unpooled.data.simulation.simulation import Simulation, varying
from unpooled.errors import ResultsError


def write(simulation: Simulation, folder: str | Path) -> Path:
    """Write site1.csv …, truth.csv and study.toml (and the test people, if any); return the study file."""
    folder = Path(folder)
    _require_free(folder)
    try:
        return _write(simulation, folder)
    except OSError:
        problem = "a folder that cannot be written"
    raise ResultsError(
        "the folder must be one that can be written",
        found=f"{problem}: {folder}",
        remedy="choose another folder",
    )


def _write(simulation: Simulation, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for site, frame in simulation.frames.items():
        frame.to_csv(folder / f"{site}.csv", index=False)
    simulation.truth.to_csv(folder / "truth.csv", index=False)
    if simulation.test:
        (folder / "test").mkdir()
        for site, frame in simulation.test.items():
            frame.to_csv(folder / "test" / f"{site}.csv", index=False)
        simulation.test_truth.to_csv(folder / "test_truth.csv", index=False)
    study = folder / "study.toml"
    study.write_text(study_file(simulation), encoding="utf-8")
    return study


def study_file(simulation: Simulation) -> str:
    """The text of the study file, its paths relative to itself."""
    people = pd.concat(simulation.frames.values()).drop(columns=list(simulation.incomplete))
    incomplete = f"incomplete = {_list(simulation.incomplete)}\n" if simulation.incomplete else ""
    sites = "".join(f'\n[sites.{site}]\npath = "{site}.csv"\n' for site in simulation.frames)
    return (
        f'[study]\nname = "{simulation.name}"\nseed = {simulation.seed}\n\n'
        f'[columns]\ntreatment = "w"\noutcome = "y"\ncovariates = {_list(varying(people))}\n{incomplete}'
        f'family = "{simulation.family}"\n\n'
        f'[method]\nname = "{simulation.method}"\n{sites}'
    )


def _list(names: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def _require_free(folder: Path) -> None:
    taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if taken:
        raise ResultsError(
            "the folder must be new or empty",
            found=f"something is already there: {folder}",
            remedy="choose another folder, or empty this one",
        )
