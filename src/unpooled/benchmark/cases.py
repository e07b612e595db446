"""A case: training and test people at each site, and the truth about both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from unpooled.data.simulation import simulate, varying
from unpooled.errors import DataError

IHDP_SITES, IHDP_THIRDS = 3, (83, 83, 83)
TRUTH = ("y0", "y1", "mu0", "mu1")


@dataclass(frozen=True, eq=False)
class Case:
    """People by site: `train` is fitted, `valid` tunes where a contender tunes, `test` is scored.

    The sites that are scored may be fewer than those that train: the first of them.
    Truths have columns site, y0, y1, mu0, mu1, in the order of the sites' rows.
    """

    train: dict[str, pd.DataFrame]
    valid: dict[str, pd.DataFrame]
    test: dict[str, pd.DataFrame]
    train_truth: pd.DataFrame
    test_truth: pd.DataFrame

    def first(self, sites: int) -> Case:
        """The same with the first few sites only."""
        train, valid, test = (_first(part, sites) for part in (self.train, self.valid, self.test))
        return Case(train, valid, test, _of(self.train_truth, train), _of(self.test_truth, test))

    def scored_at(self, sites: int) -> Case:
        """The same people, only those of the first few sites scored."""
        test = _first(self.test, sites)
        return replace(self, test=test, test_truth=_of(self.test_truth, test))

    @property
    def covariates(self) -> list[str]:
        """Those that vary over the training people: IHDP's rarest flags may not."""
        return varying(pd.concat(self.train.values()))


def _first(people: dict[str, pd.DataFrame], sites: int) -> dict[str, pd.DataFrame]:
    return {site: people[site] for site in list(people)[:sites]}


def _of(truth: pd.DataFrame, people: dict[str, pd.DataFrame]) -> pd.DataFrame:
    return truth.loc[truth["site"].isin(list(people))]


def simulated(
    name: str, seed: int, *, sites: int, rows: int = 50, test: int = 450, valid: int = 400, **options: Any
) -> Case:
    """`rows` people to train, then `test` to score, then `valid` to tune, at each site."""
    made = simulate(name, sites=sites, rows=rows, test_rows=test + valid, seed=seed, **options)
    scored = {site: frame.iloc[:test].reset_index(drop=True) for site, frame in made.test.items()}
    tuning = {site: frame.iloc[test:].reset_index(drop=True) for site, frame in made.test.items()}
    inside = made.test_truth.groupby("site").cumcount()
    return Case(made.frames, tuning, scored, made.truth, made.test_truth.loc[inside < test])


def ihdp(folder: Path, replicate: int, sizes: tuple[int, int, int] = IHDP_THIRDS) -> Case:
    """Three sites of 249 people in file order; in each some train, the next are scored, the rest tune."""
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
    train, test, valid = (_block(table, sizes, part) for part in range(3))
    columns = [*names[5:], "w", "y"]
    frames = [{site: part.loc[:, columns] for site, part in parts.items()} for parts in (train, valid, test)]
    truths = [
        pd.concat([part[list(TRUTH)].assign(site=site) for site, part in parts.items()], ignore_index=True)
        for parts in (train, test)
    ]
    return Case(frames[0], frames[1], frames[2], truths[0], truths[1])


def _block(table: pd.DataFrame, sizes: tuple[int, int, int], part: int) -> dict[str, pd.DataFrame]:
    starts = [site * sum(sizes) + sum(sizes[:part]) for site in range(IHDP_SITES)]
    return {
        f"site{i + 1}": table.iloc[start : start + sizes[part]].reset_index(drop=True)
        for i, start in enumerate(starts)
    }
