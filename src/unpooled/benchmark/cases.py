"""A case: training and test people at each site, and the truth about both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from unpooled.data.simulation import simulate
from unpooled.errors import DataError

IHDP_SITES, IHDP_BLOCK, IHDP_THIRD = 3, 249, 83
TRUTH = ("y0", "y1", "mu0", "mu1")


@dataclass(frozen=True, eq=False)
class Case:
    """People by site: `train` is fitted, `valid` tunes where a contender tunes, `test` is scored.

    Truths have columns site, y0, y1, mu0, mu1, in the order of the sites' rows.
    """

    train: dict[str, pd.DataFrame]
    valid: dict[str, pd.DataFrame]
    test: dict[str, pd.DataFrame]
    train_truth: pd.DataFrame
    test_truth: pd.DataFrame

    def first(self, sites: int) -> Case:
        """The same with the first few sites only."""
        names = list(self.train)[:sites]
        train, valid, test = ({n: part[n] for n in names} for part in (self.train, self.valid, self.test))
        truths = (truth.loc[truth["site"].isin(names)] for truth in (self.train_truth, self.test_truth))
        return Case(train, valid, test, *truths)

    @property
    def covariates(self) -> list[str]:
        """Those that vary over the training people: IHDP's rarest flags may not."""
        return varying(pd.concat(self.train.values()))


def varying(table: pd.DataFrame) -> list[str]:
    """The covariates that take more than one value and do not repeat an earlier one, as rare flags may."""
    covariates = table.drop(columns=["w", "y"])
    covariates = covariates.loc[:, covariates.nunique().to_numpy() > 1]
    alike = np.abs(np.corrcoef(covariates.to_numpy(float), rowvar=False)) > 1.0 - 1e-9
    earlier = np.tril(np.atleast_2d(alike), -1).any(axis=1)
    return [str(name) for name in covariates.columns[~earlier]]


def simulated(
    name: str, replicate: int, *, sites: int, rows: int = 50, test: int = 450, valid: int = 400
) -> Case:
    """`rows` people to train, then `test` to score, then `valid` to tune, at each site."""
    made = simulate(name, sites=sites, rows=rows, test_rows=test + valid, seed=replicate)
    scored = {site: frame.iloc[:test].reset_index(drop=True) for site, frame in made.test.items()}
    tuning = {site: frame.iloc[test:].reset_index(drop=True) for site, frame in made.test.items()}
    inside = made.test_truth.groupby("site").cumcount()
    return Case(made.frames, tuning, scored, made.truth, made.test_truth.loc[inside < test])


def ihdp(folder: Path, replicate: int) -> Case:
    """Three sites of 249 people in file order; in each a third trains, a third is scored, a third tunes."""
    path = folder / f"ihdp_npci_{replicate}.csv"
    if not path.exists():
        raise DataError(
            "the IHDP table needs its files",
            found=f"no {path.name} in {folder}",
            remedy="give the folder with --ihdp, or leave the table out",
        )
    names = ["w", "factual", "counterfactual", "mu0", "mu1", *[f"x{i}" for i in range(1, 26)]]
    table = pd.read_csv(path, header=None, names=names)
    treated = table["w"] == 1
    table["y"] = table["factual"]
    table["y0"] = table["factual"].where(~treated, table["counterfactual"])
    table["y1"] = table["factual"].where(treated, table["counterfactual"])
    train, test, valid = (_block(table, part) for part in range(3))
    columns = [*names[5:], "w", "y"]
    frames = [{site: part.loc[:, columns] for site, part in parts.items()} for parts in (train, valid, test)]
    truths = [
        pd.concat([part[list(TRUTH)].assign(site=site) for site, part in parts.items()], ignore_index=True)
        for parts in (train, test)
    ]
    return Case(frames[0], frames[1], frames[2], truths[0], truths[1])


def _block(table: pd.DataFrame, part: int) -> dict[str, pd.DataFrame]:
    starts = [site * IHDP_BLOCK + part * IHDP_THIRD for site in range(IHDP_SITES)]
    return {
        f"site{i + 1}": table.iloc[start : start + IHDP_THIRD].reset_index(drop=True)
        for i, start in enumerate(starts)
    }
