"""A case: the training, tuning and test people of each site, with their true effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from unpooled.data.simulation import simulate, varying
from unpooled.errors import DataError

IHDP_SITES, IHDP_THIRDS = 3, (83, 83, 83)
INCOMPLETE_IHDP_SITES, INCOMPLETE_IHDP_SIZES = 6, (80, 24, 20)
"""IHDP with missing values: 744 of its 747 people, at six sites of 124."""
INCOMPLETE_IHDP_COLUMNS = ("x1", "x2", "x3", "x4")
TRUTH = ("y0", "y1", "mu0", "mu1")


@dataclass(frozen=True, eq=False)
class Case:
    """People by site: contenders are fitted to `train`, may tune on `valid`, and are scored on `test`.

    The scored sites are the first few of the training sites or, with `everybody`, all sites, including those
    that do not train. Values of the `incomplete` covariates may be missing (NaN) in every part.

    The truths have the columns site, y0, y1, mu0 and mu1, in the order of the sites' rows. Where it is known,
    `conditional` is the expected effect given a person's observed values.
    """

    train: dict[str, pd.DataFrame]
    valid: dict[str, pd.DataFrame]
    test: dict[str, pd.DataFrame]
    train_truth: pd.DataFrame
    test_truth: pd.DataFrame
    incomplete: tuple[str, ...] = ()
    everybody: bool = False

    def first(self, sites: int) -> Case:
        """The same case with the first few sites only."""
        train, valid = (_first(part, sites) for part in (self.train, self.valid))
        case = replace(self, train=train, valid=valid, train_truth=_of(self.train_truth, train))
        return case if self.everybody else case.scored_at(sites)

    def scored_at(self, sites: int) -> Case:
        """The same case, scored on the first few sites only."""
        test = _first(self.test, sites)
        return replace(self, test=test, test_truth=_of(self.test_truth, test))

    @property
    def covariates(self) -> list[str]:
        """The complete covariates that vary over the training people; IHDP's rarest 0/1 columns may not."""
        return varying(pd.concat(self.train.values()).drop(columns=list(self.incomplete)))


def _first(people: dict[str, pd.DataFrame], sites: int) -> dict[str, pd.DataFrame]:
    return {site: people[site] for site in list(people)[:sites]}


def _of(truth: pd.DataFrame, people: dict[str, pd.DataFrame]) -> pd.DataFrame:
    return truth.loc[truth["site"].isin(list(people))]


def simulated(
    name: str,
    seed: int,
    *,
    sites: int,
    rows: int = 50,
    test: int = 450,
    valid: int = 400,
    options: Mapping[str, object] | None = None,
) -> Case:
    """A simulated case with `rows` training, `test` scored and `valid` tuning people per site.

    `options` are those of the simulation.
    """
    made = simulate(name, sites=sites, rows=rows, test_rows=test + valid, seed=seed, **(options or {}))
    scored = {site: frame.iloc[:test].reset_index(drop=True) for site, frame in made.test.items()}
    tuning = {site: frame.iloc[test:].reset_index(drop=True) for site, frame in made.test.items()}
    inside = made.test_truth.groupby("site").cumcount()
    scored_truth = made.test_truth.loc[inside < test]
    return Case(made.frames, tuning, scored, made.truth, scored_truth, incomplete=made.incomplete)


def ihdp(folder: Path, replicate: int, sizes: tuple[int, int, int] = IHDP_THIRDS) -> Case:
    """IHDP as three sites of 249 people in file order, divided into training, scored and tuning people."""
    return _cut(_ihdp(folder, replicate), IHDP_SITES, sizes)


def incomplete_ihdp(folder: Path, replicate: int) -> Case:
    """IHDP as six sites of 124, with x1 to x4 missing where the replicate's mask is 0; all are scored."""
    table = _ihdp(folder, replicate)
    path = _found(folder, f"observed_mask_{replicate}.csv")
    mask = pd.read_csv(path, header=None).to_numpy()
    if mask.shape != (len(table), len(INCOMPLETE_IHDP_COLUMNS)) or not np.isin(mask, (0, 1)).all():
        raise DataError(
            f"a mask must have {len(INCOMPLETE_IHDP_COLUMNS)} columns of 0 and 1 and one row per person",
            found=f"{mask.shape[0]} rows and {mask.shape[1]} columns for {len(table)} people, in {path.name}",
            remedy="give a folder in which masks and tables belong together",
        )
    table[list(INCOMPLETE_IHDP_COLUMNS)] = table[list(INCOMPLETE_IHDP_COLUMNS)].where(mask == 1)
    return replace(
        _cut(table, INCOMPLETE_IHDP_SITES, INCOMPLETE_IHDP_SIZES),
        incomplete=INCOMPLETE_IHDP_COLUMNS,
        everybody=True,
    )


def _ihdp(folder: Path, replicate: int) -> pd.DataFrame:
    names = ["w", "factual", "counterfactual", "mu0", "mu1", *[f"x{i}" for i in range(1, 26)]]
    table = pd.read_csv(_found(folder, f"ihdp_npci_{replicate}.csv"), header=None, names=names)
    treated = table["w"] == 1
    table["y"] = table["factual"]
    table["y0"] = table["factual"].where(~treated, table["counterfactual"])
    table["y1"] = table["factual"].where(treated, table["counterfactual"])
    return table


def _found(folder: Path, name: str) -> Path:
    if not (folder / name).exists():
        raise DataError(
            "the IHDP tables need the IHDP files",
            found=f"no {name} in {folder}",
            remedy="give the folder with --ihdp, or leave the table out",
        )
    return folder / name


def _cut(table: pd.DataFrame, sites: int, sizes: tuple[int, int, int]) -> Case:
    train, test, valid = (_block(table, sites, sizes, part) for part in range(3))
    columns = [*[f"x{i}" for i in range(1, 26)], "w", "y"]
    frames = [{site: part.loc[:, columns] for site, part in parts.items()} for parts in (train, valid, test)]
    truths = [
        pd.concat([part[list(TRUTH)].assign(site=site) for site, part in parts.items()], ignore_index=True)
        for parts in (train, test)
    ]
    return Case(frames[0], frames[1], frames[2], truths[0], truths[1])


def _block(
    table: pd.DataFrame, sites: int, sizes: tuple[int, int, int], part: int
) -> dict[str, pd.DataFrame]:
    starts = [site * sum(sizes) + sum(sizes[:part]) for site in range(sites)]
    return {
        f"site{i + 1}": table.iloc[start : start + sizes[part]].reset_index(drop=True)
        for i, start in enumerate(starts)
    }
