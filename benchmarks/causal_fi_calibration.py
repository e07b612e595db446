"""How often CausalFI's 95 % intervals hold the truth, over small studies of fresh worlds.

    python benchmarks/causal_fi_calibration.py --mechanism mar --studies 50

Every study has its own coefficients and its own people: five sites of 80, four of ten incomplete confounders
with holes. Beside it the same model fitted to complete rows alone. The population's average effect is that of
20,000 further people.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import pandas as pd

import unpooled as up
from unpooled.data.simulation import simulate


def holds(interval: tuple[Any, Any], truth: Any) -> np.ndarray:
    lower, upper = interval
    return (np.asarray(lower) <= truth) & (truth <= np.asarray(upper))


def one(number: int, options: argparse.Namespace) -> dict[str, float]:
    world = {
        "mechanism": options.mechanism,
        "kinds": options.kinds,
        "incomplete": options.incomplete,
        "coefficient_seed": 1000 + number,
        "coefficient_sd": options.coefficient_sd,
    }
    sizes = {"sites": options.sites, "rows": options.rows}
    data = simulate("causalfi", **sizes, seed=number, test_rows=40, **world)
    people = simulate("causalfi", sites=1, rows=20_000, seed=90_000 + number, **world)
    complete = [c for c in data.frames["site1"].columns if c not in ("w", "y", *data.incomplete)]
    study = up.Study(treatment="w", outcome="y", covariates=complete, incomplete=data.incomplete)
    model = up.CausalFI(seed=number).fit(study, data.frames)
    found = []
    first = 0
    for site, frame in data.test.items():
        truth = data.test_truth["conditional"].to_numpy()[first : first + len(frame)]
        first += len(frame)
        asked = frame[[*complete, *data.incomplete]]
        found.append(holds(model.effect_interval(asked, site=site), truth))
    return {
        "study": number,
        "cate": float(np.concatenate(found).mean()),
        "population": float(holds(model.ate_interval(), people.expected_ate)),
        "sample": float(holds(model.ate_interval(), data.expected_ate)),
        "error": abs(model.ate() - data.expected_ate),
        **complete_rows(data, study, people.expected_ate, number),
    }


def complete_rows(data: Any, study: up.Study, truth: float, seed: int) -> dict[str, float]:
    """The same model where everybody with a hole is left out; NaN where too few are left to fit."""
    kept = {site: frame.dropna().reset_index(drop=True) for site, frame in data.frames.items()}
    try:
        model = up.CausalFI(seed=seed).fit(study, kept)
    except up.UnpooledError:
        return {"complete_rows": np.nan, "complete_error": np.nan}
    error = abs(model.ate() - data.expected_ate)
    return {"complete_rows": float(holds(model.ate_interval(), truth)), "complete_error": error}


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
