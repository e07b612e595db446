"""How often CausalFI's 95 % intervals cover the truth, over small simulated studies.

    python benchmarks/causal_fi_calibration.py --mechanism mar --studies 50

Every study has its own coefficients and people: five sites of 80, and missing values in four of ten
confounders. For comparison, the same model is fitted to the complete rows only. The population's average
effect is computed from 20,000 further people.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

import unpooled as up
from unpooled.data.simulation import Simulation, simulate


def covers(interval: tuple[ArrayLike, ArrayLike], truth: ArrayLike) -> np.ndarray:
    """Whether the interval contains the truth."""
    lower, upper = interval
    return (np.asarray(lower) <= np.asarray(truth)) & (np.asarray(truth) <= np.asarray(upper))


def one(number: int, options: argparse.Namespace) -> dict[str, float]:
    """Coverage and errors of one study."""
    process = {
        "mechanism": options.mechanism,
        "kinds": options.kinds,
        "incomplete": options.incomplete,
        "coefficient_seed": 1000 + number,
        "coefficient_sd": options.coefficient_sd,
    }
    sizes = {"sites": options.sites, "rows": options.rows}
    data = simulate("causalfi", **sizes, seed=number, test_rows=40, **process)
    people = simulate("causalfi", sites=1, rows=20_000, seed=90_000 + number, **process)
    complete = [c for c in data.frames["site1"].columns if c not in ("w", "y", *data.incomplete)]
    study = up.Study(treatment="w", outcome="y", covariates=complete, incomplete=data.incomplete)
    model = up.CausalFI(seed=number).fit(study, data.frames)
    found = []
    first = 0
    for site, frame in data.test.items():
        truth = data.test_truth["conditional"].to_numpy()[first : first + len(frame)]
        first += len(frame)
        asked = frame[[*complete, *data.incomplete]]
        found.append(covers(model.effect_interval(asked, site=site), truth))
    return {
        "study": number,
        "cate": float(np.concatenate(found).mean()),
        "population": float(covers(model.ate_interval(), people.expected_ate)),
        "sample": float(covers(model.ate_interval(), data.expected_ate)),
        "error": abs(model.ate() - data.expected_ate),
        **complete_rows(data, study, people.expected_ate, number),
    }


def complete_rows(data: Simulation, study: up.Study, truth: float, seed: int) -> dict[str, float]:
    """The same model fitted to people without missing values; NaN if there are too few to fit."""
    kept = {site: frame.dropna().reset_index(drop=True) for site, frame in data.frames.items()}
    try:
        model = up.CausalFI(seed=seed).fit(study, kept)
    except up.UnpooledError:
        return {"complete_rows": np.nan, "complete_error": np.nan}
    error = abs(model.ate() - data.expected_ate)
    return {"complete_rows": float(covers(model.ate_interval(), truth)), "complete_error": error}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mechanism", choices=("mar", "mcar"), default="mar")
    parser.add_argument("--kinds", choices=("numbers", "mixed"), default="numbers")
    parser.add_argument("--studies", type=int, default=50)
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--rows", type=int, default=80)
    parser.add_argument("--incomplete", type=int, default=4)
    parser.add_argument("--coefficient-sd", type=float, default=2.0)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    found = []
    for number in range(1, options.studies + 1):
        found.append(one(number, options))
        print({name: round(value, 2) for name, value in found[-1].items()}, flush=True)
    means = pd.DataFrame(found).drop(columns="study").mean()
    print(means.round(3).to_string())


if __name__ == "__main__":
    main()
