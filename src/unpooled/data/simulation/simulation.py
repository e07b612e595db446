"""Simulations: site tables with the truth about their people, how they are drawn and written to a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from unpooled.errors import ResultsError, StudyError
from unpooled.study.family import Family


@dataclass(frozen=True)
class Simulation:
    """The tables of the sites, and the truth about their people.

    ``truth`` has one row per person: the site, the row in the site's table (from 0), both potential outcomes
    ``y0`` and ``y1``, and their means ``mu0`` and ``mu1`` given the covariates or, if there are any, the
    latent variables. ``method`` is the method named in the study file, and ``incomplete`` are the covariates
    with missing values.
    """

    name: str
    family: Family
    seed: int
    frames: dict[str, pd.DataFrame]
    test: dict[str, pd.DataFrame]
    truth: pd.DataFrame
    test_truth: pd.DataFrame
    method: str = "fedci"
    incomplete: tuple[str, ...] = ()

    @property
    def ate(self) -> float:
        """The sample average effect: the mean of y(1) - y(0) over the people of ``frames``."""
        return _mean_difference(self.truth, "y1", "y0")

    @property
    def expected_ate(self) -> float:
        """The same without the noise of the outcomes: the mean of mu1 - mu0."""
        return _mean_difference(self.truth, "mu1", "mu0")


def varying(table: pd.DataFrame) -> list[str]:
    """The covariates that are neither constant nor a repetition of an earlier one."""
    covariates = table.drop(columns=["w", "y"])
    covariates = covariates.loc[:, covariates.nunique().to_numpy() > 1]
    numbers = covariates.select_dtypes("number")
    alike = np.abs(np.corrcoef(numbers.to_numpy(float), rowvar=False)) > 1.0 - 1e-9
    repeated = numbers.columns[np.tril(np.atleast_2d(alike), -1).any(axis=1)]
    return [str(name) for name in covariates.columns if name not in repeated]


def _mean_difference(truth: pd.DataFrame, of: str, minus: str) -> float:
    return float(np.mean(truth[of].to_numpy(float) - truth[minus].to_numpy(float)))


Tables = tuple[pd.DataFrame, pd.DataFrame]
"""A site's table, and the truth about the same people."""


def site_tables(
    people: Callable[[int, int, np.random.Generator], Tables], *, sites: int, rows: int, seed: int, part: int
) -> tuple[dict[str, pd.DataFrame], pd.DataFrame]:
    """Draw the tables of all sites by `people(number, rows, generator)`, with sites numbered from 1.

    Every site has its own random stream, so that adding sites or test rows leaves the others unchanged. With
    `rows=0` there are no tables.
    """
    frames, truths = {}, []
    for number in range(1, sites + 1 if rows else 1):
        site = f"site{number}"
        frames[site], truth = people(number, rows, np.random.default_rng([seed, number, part]))
        truth.insert(0, "site", site)
        truths.append(truth)
    empty = pd.DataFrame(columns=["site", "row", "y0", "y1", "mu0", "mu1"])
    return frames, pd.concat(truths, ignore_index=True) if truths else empty


def observed(
    covariates: Iterable[np.ndarray],
    w: np.ndarray,
    outcomes: tuple[np.ndarray, ...],
    means: tuple[np.ndarray, ...],
) -> Tables:
    """The table with covariates, treatment and observed outcome, and the truth with everything else."""
    (y0, y1), (mu0, mu1) = outcomes, means
    frame = pd.DataFrame({f"x{j}": column for j, column in enumerate(covariates, 1)}).assign(
        w=w, y=np.where(w == 1, y1, y0)
    )
    return frame, pd.DataFrame({"row": np.arange(len(w)), "y0": y0, "y1": y1, "mu0": mu0, "mu1": mu1})


def sigmoid(value: np.ndarray) -> np.ndarray:
    """The logistic function φ, without overflow."""
    return np.exp(-np.logaddexp(0.0, -value))


def require_at_least(limits: dict[str, tuple[float, float]]) -> None:
    """Require that each argument's value is not below its limit."""
    for word, (value, limit) in limits.items():
        if not value >= limit:
            raise StudyError(
                f"'{word}' must be at least {limit}", found=str(value), remedy=f"give a larger '{word}'"
            )


def write(simulation: Simulation, folder: str | Path) -> Path:
    """Write site1.csv …, truth.csv, study.toml and the test people, if any; return the path of study.toml."""
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
    """The text of the study file, with paths relative to it."""
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
