"""A case: training and test people at each site, and the truth about both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from unpooled.data.simulation import simulate, varying
from unpooled.errors import DataError

IHDP_SITES, IHDP_THIRDS = 3, (83, 83, 83)
HOLED_SITES, HOLED_SIZES = 6, (80, 24, 20)
"""IHDP where some of it is missing: 744 of its 747 people, six sites of 124."""
HOLED = ("x1", "x2", "x3", "x4")
TRUTH = ("y0", "y1", "mu0", "mu1")


@dataclass(frozen=True, eq=False)
class Case:
    """People by site: `train` is fitted, `valid` tunes where a contender tunes, `test` is scored.

    The sites that are scored may be fewer than those that train: the first of them. Or they are always all
    (`everybody`), also those that do not train. Values of `incomplete` covariates may be missing, as NaN, of
    training and scored people alike.

    Truths have columns site, y0, y1, mu0, mu1, in the order of the sites' rows; and `conditional`, where it
    is known what effect can be expected of what is seen of a person.
    """

    train: dict[str, pd.DataFrame]
    valid: dict[str, pd.DataFrame]
    test: dict[str, pd.DataFrame]
    train_truth: pd.DataFrame
    test_truth: pd.DataFrame
    incomplete: tuple[str, ...] = ()
    everybody: bool = False

    def first(self, sites: int) -> Case:
        """The same with the first few sites only."""
        train, valid = (_first(part, sites) for part in (self.train, self.valid))
        case = replace(self, train=train, valid=valid, train_truth=_of(self.train_truth, train))
        return case if self.everybody else case.scored_at(sites)

    def scored_at(self, sites: int) -> Case:
        """The same people, only those of the first few sites scored."""
        test = _first(self.test, sites)
        return replace(self, test=test, test_truth=_of(self.test_truth, test))

    @property
    def covariates(self) -> list[str]:
        """The complete ones that vary over the training people: IHDP's rarest flags may not."""
        return varying(pd.concat(self.train.values()).drop(columns=list(self.incomplete)))


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
    scored_truth = made.test_truth.loc[inside < test]
    return Case(made.frames, tuning, scored, made.truth, scored_truth, incomplete=made.incomplete)


def ihdp(folder: Path, replicate: int, sizes: tuple[int, int, int] = IHDP_THIRDS) -> Case:
    """Three sites of 249 people in file order; in each some train, the next are scored, the rest tune."""
    return _cut(_ihdp(folder, replicate), IHDP_SITES, sizes)


def ihdp_with_holes(folder: Path, replicate: int) -> Case:
    """Six sites of 124, x1 to x4 only where the replicate's mask has a 1; all six are scored."""
    table = _ihdp(folder, replicate)
    path = _found(folder, f"observed_mask_{replicate}.csv")
    mask = pd.read_csv(path, header=None).to_numpy()
    if mask.shape != (len(table), len(HOLED)) or not np.isin(mask, (0, 1)).all():
        raise DataError(
            f"a mask must have {len(HOLED)} columns of 0 and 1, a row for each person of its replicate",
            found=f"{mask.shape[0]} rows and {mask.shape[1]} columns for {len(table)} people, in {path.name}",
            remedy="give the folder whose masks belong to its tables",
        )
    table[list(HOLED)] = table[list(HOLED)].where(mask == 1)
    return replace(_cut(table, HOLED_SITES, HOLED_SIZES), incomplete=HOLED, everybody=True)


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
            "the IHDP table needs its files",
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
