"""External controls: a trial in which everybody is treated, and two hospitals in which nobody is.

    python benchmarks/external_controls.py [--replicates 50] [--people 80] [--shift 0.3] [--first 1000]
        [--only "FedCI" …]

People of the trial differ from those of the hospitals in their covariates, and every site has a shift of its
outcomes, drawn from a normal with standard deviation `shift` (0: no shift); the outcome's noise has sd 1. A
line is printed for each method and each of two averages, over all sites and over the people of the trial:
bias, root mean squared error, coverage of 95 % intervals with its Monte Carlo error, and their mean width.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri

import unpooled as up
from unpooled.errors import FailedCheckWarning

TRIAL, HOSPITALS = "trial", ("hospital 1", "hospital 2")
AGES = {"trial": -0.5, "hospital 1": 0.3, "hospital 2": 0.0}
"""Means of the first two covariates at each site, in sds."""
COVARIATES = ["a", "b", "flag"]


class Answer(NamedTuple):
    """An estimate and its interval, over all sites and over the trial."""

    overall: tuple[float, float, float]
    trial: tuple[float, float, float]


def simulate(people: int, shift: float, seed: int) -> tuple[dict[str, pd.DataFrame], Answer]:
    """The tables, and the true average effects in the populations of which the sites' people are a sample."""
    rng, tables = np.random.default_rng(seed), {}
    for site, mean in AGES.items():
        a, b, noise = rng.normal(size=(3, people))
        a, b, flag = a + mean, b + mean, rng.integers(0, 2, people)
        w = int(site == TRIAL)
        own = shift * rng.normal()
        y = a + 0.3 * b**2 + 0.5 * flag + w * (1.0 + 0.5 * b) + own + noise
        tables[site] = pd.DataFrame({"a": a, "b": b, "flag": flag, "w": w, "y": y})
    effects = {site: 1.0 + 0.5 * mean for site, mean in AGES.items()}
    overall = float(np.mean(list(effects.values())))
    return tables, Answer((overall,) * 3, (effects[TRIAL],) * 3)


def fitted(
    make: Callable[[], up.FedCI | up.CausalRFF | up.AIPW],
) -> Callable[[dict[str, pd.DataFrame]], Answer]:
    """The answer of an estimator."""

    def answer(tables: dict[str, pd.DataFrame]) -> Answer:
        study = up.Study(treatment="w", outcome="y", covariates=COVARIATES)
        model = make().fit(study, tables)
        known = TRIAL not in model.result_.sites_without_effects
        return Answer(
            (model.ate(), *model.ate_interval()),
            (model.ate(TRIAL), *model.ate_interval(TRIAL)) if known else (np.nan,) * 3,
        )

    return answer


def difference(tables: dict[str, pd.DataFrame]) -> Answer:
    """The unadjusted difference of means, with Welch's standard error."""
    stacked = pd.concat(tables.values())
    treated, control = (stacked.loc[stacked["w"] == arm, "y"] for arm in (1, 0))
    reach = ndtri(0.975) * np.sqrt(treated.var() / len(treated) + control.var() / len(control))
    found = float(treated.mean() - control.mean())
    return Answer(*[(found, found - reach, found + reach)] * 2)


CONTENDERS: dict[str, Callable[[dict[str, pd.DataFrame]], Answer]] = {
    "FedCI": fitted(up.FedCI),
    "FedCI, no site shifts": fitted(lambda: up.FedCI(inter_dependency=False)),
    "CausalRFF": fitted(lambda: up.CausalRFF(confounding="observed")),
    "CausalRFF, no site terms": fitted(lambda: up.CausalRFF(confounding="observed", site_terms="none")),
    "AIPW, no site terms": fitted(lambda: up.AIPW(site_terms="none")),
    "difference": difference,
}


def line(name: str, over: str, found: np.ndarray, truth: np.ndarray) -> str:
    """Scores of estimates and intervals [replicate, 3]."""
    error, covered = found[:, 0] - truth, (found[:, 1] <= truth) & (truth <= found[:, 2])
    rate, count = covered.mean(), len(found)
    margin = np.sqrt(rate * (1.0 - rate) / count)
    return (
        f"{name:26s} {over:9s} bias {error.mean():+.3f} ± {error.std() / np.sqrt(count):.3f}  "
        f"rmse {np.sqrt(np.mean(error**2)):.3f}  coverage {rate:.0%} ± {margin:.0%}  "
        f"width {np.mean(found[:, 2] - found[:, 1]):.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replicates", type=int, default=50)
    parser.add_argument("--people", type=int, default=80)
    parser.add_argument("--shift", type=float, default=0.3)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--only", nargs="*", choices=list(CONTENDERS), default=list(CONTENDERS))
    asked = parser.parse_args()
    warnings.simplefilter("ignore", FailedCheckWarning)  # no site has both arms, and every fit says so
    made = [simulate(asked.people, asked.shift, asked.first + one) for one in range(asked.replicates)]
    truth = made[0][1]
    print(
        f"{asked.replicates} replicates, {asked.people} people per site, site shifts with sd {asked.shift:g}"
    )
    for name in asked.only:
        start = time.perf_counter()
        answers = [CONTENDERS[name](tables) for tables, _ in made]
        seconds = (time.perf_counter() - start) / asked.replicates
        for over, known in truth._asdict().items():
            found = np.array([getattr(answer, over) for answer in answers])
            if np.isnan(found).all():  # AIPW tells only the effect over all sites
                continue
            print(
                line(name, over, found, known[0]),
                f" {seconds:.1f} s" if over == "overall" else "",
                flush=True,
            )


if __name__ == "__main__":
    main()
