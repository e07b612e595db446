"""Coverage, bias and width of intervals in studies on which they may fail.

    python benchmarks/interval_coverage.py CASE METHOD [--fits 100] [--first 1000] [--settings JSON]
                                           [--without-weights]

A case is simulated as often as there are fits, each time with another seed, and fitted by one method with its
defaults. One line is printed: coverage of the population's and of the sample's average effect with their
Monte Carlo errors, bias of the average effect, root mean squared error, coverage and mean width of the
conditional effects of the sites' people, share of fits in which some check and each check failed, rounds,
and seconds.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import unpooled as up
from unpooled.errors import FailedCheckWarning

METHODS = {
    "fedci": up.FedCI,
    "causal_rff": up.CausalRFF,
    "causal_fi": up.CausalFI,
    "aipw": up.AIPW,
    "meta_analysis": up.MetaAnalysis,
}
Function = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Case:
    """A simulated study: the mean without treatment, the effect and the log odds of treatment, all of x."""

    sites: int
    rows: int
    covariates: int
    control: Function
    effect: Function
    log_odds: Function
    family: str = "continuous"
    missing: float = 0.0
    """Share of the first covariate that is missing completely at random."""
    chance: Function | None = None
    """The chance to be sampled, of which sampling weights are the inverse; None if it is the same for all."""
    unknown: int = 0
    """How many of the last covariates are not in the tables."""


def _zero(x: np.ndarray) -> np.ndarray:
    return np.zeros(len(x))


def _constant(x: np.ndarray) -> np.ndarray:
    return np.ones(len(x))


def _chance(logit: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-logit))


def _sharp(x: np.ndarray) -> np.ndarray:
    return 1.0 + 1.5 * np.sin(2.0 * x[:, 0]) * np.sin(2.0 * x[:, 1])


def _risk_difference(x: np.ndarray) -> np.ndarray:
    return _chance(-1.7 + 0.5 * x[:, 0] - 0.2 * x[:, 1]) - _chance(-1.5 + 0.5 * x[:, 0])


def _oversampled(x: np.ndarray) -> np.ndarray:
    return np.where(x[:, -1] > 0.0, 0.8, 0.2)


CASES = {
    "noise": Case(3, 80, 5, _zero, _zero, _zero),
    "constant": Case(3, 80, 5, lambda x: x[:, 0] + 0.5 * x[:, 1], _constant, lambda x: 0.5 * x[:, 0]),
    "slope": Case(3, 80, 5, lambda x: x[:, 0], lambda x: 1.0 + 3.0 * x[:, 1], lambda x: 0.5 * x[:, 0]),
    "irrelevant": Case(3, 100, 41, lambda x: x[:, 0], _constant, lambda x: x[:, 0]),
    "sharp": Case(2, 300, 6, lambda x: x[:, 0], _sharp, lambda x: 0.5 * x[:, 0]),
    "binary": Case(
        3, 300, 10, lambda x: _chance(-1.5 + 0.5 * x[:, 0]), _risk_difference, lambda x: 0.4 * x[:, 0],
        family="binary",
    ),
    "overdispersed": Case(
        3, 150, 2, lambda x: np.exp(0.5 + 0.4 * x[:, 0]), lambda x: np.exp(0.5 + 0.4 * x[:, 0]),
        lambda x: 0.5 * x[:, 0], family="count", missing=0.2,
    ),
    # In each, the sample's average effect is about 1.5 and that of the population is 1.
    "sampled": Case(
        3, 200, 4, lambda x: x[:, 0], lambda x: 1.0 + x[:, -1], lambda x: 0.5 * x[:, 0], chance=_oversampled,
    ),
    "sampled by an unknown": Case(
        3, 200, 4, lambda x: x[:, 0], lambda x: 1.0 + x[:, -1], lambda x: 0.5 * x[:, 0], chance=_oversampled,
        unknown=1,
    ),
    "rare": Case(3, 500, 5, lambda x: x[:, 0], _constant, lambda x: x[:, 0] - 5.0),
}  # fmt: skip


def simulate(case: Case, seed: int) -> tuple[dict[str, pd.DataFrame], pd.DataFrame, np.ndarray]:
    """The tables of the sites, everybody's true covariates, and their true effects."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((case.sites * case.rows, case.covariates))
    if case.chance is not None:
        drawn = rng.standard_normal((10 * len(x), case.covariates))
        x = drawn[rng.random(len(drawn)) < case.chance(drawn)][: len(x)]
    treated = rng.random(len(x)) < _chance(case.log_odds(x))
    effect = case.effect(x)
    mean = case.control(x) + treated * effect
    if case.family == "binary":
        outcome = (rng.random(len(x)) < mean).astype(float)
    elif case.family == "count":
        outcome = rng.poisson(mean * rng.exponential(size=len(x))).astype(float)
    else:
        outcome = mean + rng.standard_normal(len(x))
    known = case.covariates - case.unknown
    people = pd.DataFrame(x[:, :known], columns=[f"x{i}" for i in range(known)])
    table = people.assign(w=treated.astype(int), y=outcome)
    if case.chance is not None:
        table["weight"] = 1.0 / case.chance(x)
    if case.missing:
        table.loc[rng.random(len(x)) < case.missing, "x0"] = np.nan
    tables = {
        f"site{i}": part.reset_index(drop=True) for i, part in table.groupby(np.arange(len(x)) // case.rows)
    }
    return tables, people, effect


def one_fit(
    case: Case, method: str, settings: dict[str, Any], seed: int, *, weighted: bool
) -> dict[str, float]:
    tables, people, effect = simulate(case, seed)
    names = list(people)
    incomplete, complete = (names[:1], names[1:]) if case.missing else ([], names)
    study = up.Study(
        treatment="w", outcome="y", covariates=complete, incomplete=incomplete, family=case.family,
        weight="weight" if weighted else None,
    )  # fmt: skip
    start = time.perf_counter()
    model = METHODS[method](seed=0, **settings).fit(study, tables)
    seconds = time.perf_counter() - start
    large = np.random.default_rng(0).standard_normal((200_000, case.covariates))
    found = {"seconds": seconds, "rounds": model.result_.cost.rounds}
    checks = model.checks()
    found["failed"] = float(not checks["passed"].all())
    found |= {
        f"failed: {name}": float(not ok) for name, ok in zip(checks["name"], checks["passed"], strict=True)
    }
    own = np.concatenate([table["weight"] for table in tables.values()]) if weighted else None
    truths = {"population": case.effect(large).mean(), "sample": np.average(effect, weights=own)}
    for name, truth in truths.items():
        draws = model.result_.average_outcomes.average_effects(name)[:, 0]
        lower, upper = np.quantile(draws, [0.025, 0.975])
        found |= {f"{name}_covered": float(lower <= truth <= upper), f"{name}_width": upper - lower}
        found[f"{name}_bias"] = draws.mean() - truth
    if method in ("fedci", "causal_rff") and not case.unknown:
        draws = np.concatenate(
            [model.effect_draws(table, site=site) for site, table in tables.items()], axis=1
        )
        lower, upper = np.quantile(draws, [0.025, 0.975], axis=0)
        found["cate_covered"] = float(np.mean((lower <= effect) & (effect <= upper)))
        found["cate_width"] = float(np.mean(upper - lower))
        if model.result_.noise_of_arms is not None:
            ends = [model.effect_interval(t, site=s, method="calibrated") for s, t in tables.items()]
            below, above = np.concatenate(ends, axis=1)
            found["calibrated_cate_covered"] = float(np.mean((below <= effect) & (effect <= above)))
        found["cate_error"] = float(np.sqrt(np.mean((draws.mean(axis=0) - effect) ** 2)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", choices=CASES)
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("--fits", type=int, default=100)
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    parser.add_argument("--settings", type=json.loads, default={}, help="settings of the method, as JSON")
    parser.add_argument("--without-weights", action="store_true", help="leave out the sampling weights")
    given = parser.parse_args()
    warnings.simplefilter("ignore", FailedCheckWarning)
    case = CASES[given.case]
    weighted = case.chance is not None and not given.without_weights
    rows = [
        one_fit(case, given.method, given.settings, given.first + i, weighted=weighted)
        for i in range(given.fits)
    ]
    table = pd.DataFrame(rows)
    errors = table.std() / np.sqrt(len(table))
    table = table.loc[:, (table != 0.0).any() | ~table.columns.str.startswith("failed: ")]
    cells = [f"{name} {table[name].mean():.3f} ({errors[name]:.3f})" for name in table]
    told = "weighted" if weighted else "without weights"
    print(given.case, given.method, told, given.settings, f"{len(table)} fits:", ", ".join(cells), flush=True)


if __name__ == "__main__":
    main()
