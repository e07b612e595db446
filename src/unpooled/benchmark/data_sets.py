"""Named data sets on real covariates: one list for development, another for reporting.

A data set is a table of real people, an outcome of which both sides are known, and a cut into three sites.
About a thousand people train; everybody else is new and is scored. Nobody is for tuning.

No outcome is in both lists. Files 3, 4, 6, 8 and 9 of ACIC 2016 were used in the development of this
package and are therefore not reported; of our own surfaces, those that both lists have are in each of other
columns, of another table, or both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from unpooled.benchmark.cases import TRUTH, Case
from unpooled.benchmark.real_data import (
    LEAST,
    RARE,
    acic_covariates,
    acic_outcomes,
    case_of,
    numbers,
    placed,
)
from unpooled.benchmark.surfaces import Columns, simulated
from unpooled.data.nhefs import packaged

SITES, TRAINING = 3, 1000
MOST = 5000
"""Most people of a table that are used; of the 15,992 of `earnings`, this many are drawn."""


@dataclass(frozen=True)
class DataSet:
    """A table of people, an outcome (a surface, or the number of a file of ACIC 2016), and a cut."""

    people: str
    outcome: str
    cut: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.people}-{self.outcome}-{self.cut}"

    def case(self) -> Case:
        """The people of each site: about `TRAINING` that train, and all others.

        Sites refuse 0/1 columns with rare values. A surface with such a column is drawn anew, because
        confounders would be hidden otherwise.
        """
        rng = np.random.default_rng(self.seed)
        while True:
            people, needed = self._everybody(rng)
            case = self._cut(people, rng)
            if set(needed) <= set(case.covariates):
                return case

    def _cut(self, people: pd.DataFrame, rng: np.random.Generator) -> Case:
        share = TRAINING / len(people)
        covariates = people.drop(columns=["w", "y", *TRUTH])
        seen = covariates.assign(w=people["w"], y=people["y"])
        people = people.assign(site=placed(seen, self.cut, SITES, rng, int(np.ceil(LEAST / share))))
        training = _drawn(people, share, rng)
        train, others = people.iloc[np.flatnonzero(training)], people.iloc[np.flatnonzero(~training)]
        case = case_of(train, others.iloc[:0], others, RARE)
        return replace(case, valid={site: frame.iloc[:0] for site, frame in case.train.items()})

    def _everybody(self, rng: np.random.Generator) -> tuple[pd.DataFrame, tuple[str, ...]]:
        """Everybody's covariates and outcomes, and the 0/1 columns that the surface uses."""
        if self.outcome.isdecimal():
            return acic_covariates().join(acic_outcomes(int(self.outcome))), ()
        covariates, treatment = PEOPLE[self.people](rng)
        of = Columns.drawn(covariates, rng)
        return covariates.join(simulated(of, treatment, self.outcome, rng)), of.flags


def _drawn(people: pd.DataFrame, share: float, rng: np.random.Generator) -> np.ndarray:
    """Who trains: the share of each arm at each site, rounded up, at random."""
    order = pd.Series(rng.permutation(len(people)), index=people.index)
    groups = order.groupby([people["site"], people["w"]])
    rank, size = (groups.transform(what).to_numpy(float) for what in ("rank", "size"))
    return rank <= np.ceil(share * size)


People = Callable[[np.random.Generator], tuple[pd.DataFrame, np.ndarray | None]]
"""rng → the covariates of everybody, and the treatment if it is real."""


def pregnancies(rng: np.random.Generator) -> tuple[pd.DataFrame, None]:
    """The 4,802 pregnancies of ACIC 2016, 58 covariates; the treatment is simulated."""
    return acic_covariates(), None


def nhefs(rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """NHEFS: the smokers without missing values, 15 covariates; the treatment is quitting, and is real."""
    names = [
        "sex", "race", "age", "school", "income", "ht", "wt71", "smokeintensity", "smokeyrs", "sbp", "dbp",
        "cholesterol", "headache", "exercise", "active",
    ]  # fmt: skip
    table = packaged("nhefs").loc[:, [*names, "qsmk"]].dropna().astype(float).reset_index(drop=True)
    levels = {name: [str(int(code)) for code in table[name].tolist()] for name in ("exercise", "active")}
    return numbers(table.loc[:, names].assign(**levels)), np.asarray(table["qsmk"], dtype=int)


def earnings(rng: np.random.Generator) -> tuple[pd.DataFrame, None]:
    """Men of the Current Population Survey, eight covariates; the treatment is simulated.

    They are the controls of Dehejia & Wahba's (1999) study of a training programme.
    """
    names = ["age", "educ", "black", "hisp", "marr", "nodegree", "re74", "re75"]
    table = packaged("cps_mixtape").loc[:, names].astype(float)
    return table.iloc[rng.permutation(len(table))[:MOST]].reset_index(drop=True), None


def legislators(rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """Broockman's (2013) experiment with 5,593 state legislators, ten covariates; the treatment is real.

    Half of them, at random, got an e-mail from somebody outside their district.
    """
    names = [
        "leg_black", "leg_senator", "leg_democrat", "south", "totalpop", "medianhhincom", "blackpercent",
        "nonblacknonwhite", "statessquireindex", "urbanpercent",
    ]  # fmt: skip
    table = packaged("black_politicians")
    table = table.iloc[rng.permutation(len(table))[:MOST]].reset_index(drop=True)
    return table.loc[:, names].astype(float), np.asarray(table["treat_out"], dtype=int)


PEOPLE: dict[str, People] = {
    function.__name__: function for function in (pregnancies, nhefs, earnings, legislators)
}

_DEVELOPMENT = (
    ("acic", "3", "random"), ("acic", "4", "cluster"), ("acic", "6", "propensity"), ("acic", "8", "random"),
    ("acic", "9", "cluster"),
    ("nhefs", "constant", "random"), ("nhefs", "steps", "cluster"),
    ("earnings", "smooth", "propensity"), ("earnings", "mixed", "random"),
    ("legislators", "tree", "cluster"), ("pregnancies", "linear", "propensity"),
)  # fmt: skip
_REPORTED = (
    ("acic", "1", "cluster"), ("acic", "1", "random"),
    ("acic", "2", "propensity"), ("acic", "2", "cluster"),
    ("acic", "5", "random"), ("acic", "5", "propensity"),
    ("acic", "7", "cluster"), ("acic", "7", "random"),
    ("acic", "10", "propensity"), ("acic", "10", "cluster"),
    ("nhefs", "linear", "random"), ("nhefs", "smooth", "cluster"), ("nhefs", "tree", "propensity"),
    ("nhefs", "none", "cluster"),
    ("earnings", "steps", "cluster"), ("earnings", "interaction", "propensity"),
    ("earnings", "index", "random"), ("earnings", "few", "cluster"),
    ("legislators", "mixed", "random"), ("legislators", "constant", "propensity"),
    ("legislators", "dense", "cluster"),
    ("pregnancies", "steps", "random"), ("pregnancies", "interaction", "cluster"),
    ("pregnancies", "smooth", "propensity"),
)  # fmt: skip
DEVELOPMENT = tuple(DataSet(*found, seed=1000 + i) for i, found in enumerate(_DEVELOPMENT))
"""For tuning: look at these as often as you like."""
REPORTED = tuple(DataSet(*found, seed=2000 + i) for i, found in enumerate(_REPORTED))
"""For the documentation: nothing is chosen by what is seen here."""
