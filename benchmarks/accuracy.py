"""FedCI's accuracy, calibration and cost beside simple baselines, over all replicates.

    python benchmarks/accuracy.py data1 --replicates 10 --sites 1 3 5 --output data1.csv
    python benchmarks/accuracy.py ihdp --ihdp FOLDER --sites 1 2 3 --output ihdp.csv
    python benchmarks/accuracy.py summary data1.csv ihdp.csv

Two scores, never mixed: *imputation* (people whose outcome is known, against y(1) − y(0)) and
*prediction* (new people from covariates alone, against mu1 − mu0). A finished cell is not run again.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import StandardScaler

import unpooled as up
from unpooled.data.simulation import simulate

IHDP_SITES, IHDP_BLOCK, IHDP_THIRD = 3, 249, 83


@dataclass(frozen=True)
class Replicate:
    """Training and test people by site, and the truth of both."""

    train: dict[str, pd.DataFrame]
    test: dict[str, pd.DataFrame]
    train_truth: pd.DataFrame
    test_truth: pd.DataFrame

    def first(self, sites: int) -> Replicate:
        names = list(self.train)[:sites]

        def keep(truth: pd.DataFrame) -> pd.DataFrame:
            return truth[truth["site"].isin(names)]

        train, test = ({name: frames[name] for name in names} for frames in (self.train, self.test))
        return Replicate(train, test, keep(self.train_truth), keep(self.test_truth))


def synthetic(name: str, seed: int, coefficient_seed: int | None) -> Replicate:
    made = simulate(name, sites=5, rows=50, test_rows=450, seed=seed, coefficient_seed=coefficient_seed)
    return Replicate(made.frames, made.test, made.truth, made.test_truth)


def ihdp(folder: Path, replicate: int) -> Replicate:
    """Three sites of 249 in file order; inside a site the first third trains, the second tests."""
    names = ["w", "factual", "counterfactual", "mu0", "mu1", *[f"x{i}" for i in range(1, 26)]]
    table = pd.read_csv(folder / f"ihdp_npci_{replicate}.csv", header=None, names=names)
    treated = table["w"] == 1
    table["y"] = table["factual"]
    table["y0"] = table["factual"].where(~treated, table["counterfactual"])
    table["y1"] = table["factual"].where(treated, table["counterfactual"])
    parts = []
    for offset in (0, IHDP_THIRD):
        starts = [site * IHDP_BLOCK + offset for site in range(IHDP_SITES)]
        parts.append({f"site{i + 1}": table.iloc[s : s + IHDP_THIRD] for i, s in enumerate(starts)})
    columns = [*names[5:], "w", "y"]
    frames = [
        {site: part[columns].reset_index(drop=True) for site, part in parts_of.items()} for parts_of in parts
    ]
    truths = [
        pd.concat([part[["y0", "y1", "mu0", "mu1"]].assign(site=site) for site, part in parts_of.items()])
        for parts_of in parts
    ]
    return Replicate(frames[0], frames[1], truths[0], truths[1])


def scores(ite: np.ndarray, cate: np.ndarray, truth: pd.DataFrame) -> dict[str, float]:
    individual = (truth["y1"] - truth["y0"]).to_numpy()
    conditional = (truth["mu1"] - truth["mu0"]).to_numpy()
    return {
        "imputation": float(np.sqrt(np.mean((ite - individual) ** 2))),
        "prediction": float(np.sqrt(np.mean((cate - conditional) ** 2))),
        "ate_error": float(abs(cate.mean() - conditional.mean())),
    }


def fedci(case: Replicate, settings: dict) -> dict[str, float]:
    """One fit: both scores, coverage of 95 % intervals, cost."""
    study = up.Study(treatment="w", outcome="y", covariates=_varying(case.train))
    started = time.perf_counter()
    model = up.FedCI(**settings).fit(study, case.train)
    seconds = time.perf_counter() - started
    cate = np.concatenate(
        [model.effect_draws(people, site=site) for site, people in case.test.items()], axis=1
    )
    ite = np.concatenate([model.ite_draws(site, people) for site, people in case.test.items()], axis=1)
    truth = case.test_truth
    conditional, individual = truth["mu1"] - truth["mu0"], truth["y1"] - truth["y0"]
    study_ate = float((case.train_truth["mu1"] - case.train_truth["mu0"]).mean())
    lower, upper = model.ate_interval()
    cost = model.result_.cost
    weights = model.result_.diagnostics.get("weights", {})
    return {
        **scores(ite.mean(axis=0), cate.mean(axis=0), truth),
        "cate_coverage": _coverage(cate, conditional.to_numpy()),
        "ite_coverage": _coverage(ite, individual.to_numpy()),
        "ate_covered": float(lower <= study_ate <= upper),
        "ate_sd": float(model.ate_draws().std()),
        "rounds": cost["rounds"],
        "megabytes": max(cost["bytes_up"].values()) / 1e6,
        "seconds": seconds,
        "projection_weight": weights.get("projection", np.nan),
    }


def _varying(frames: dict[str, pd.DataFrame]) -> list[str]:
    """Covariates that vary over the training people: IHDP's rarest flags may not."""
    stacked = pd.concat(frames.values())
    return [name for name in stacked if name.startswith("x") and stacked[name].nunique() > 1]


def _coverage(draws: np.ndarray, truth: np.ndarray) -> float:
    lower, upper = np.quantile(draws, [0.025, 0.975], axis=0)
    return float(np.mean((lower <= truth) & (truth <= upper)))


def baselines(case: Replicate) -> dict[str, dict[str, float]]:
    """Zero effect; one effect for all (linear regression); an isotropic GP per arm on the stacked tables."""
    train, test = (pd.concat(frames.values(), ignore_index=True) for frames in (case.train, case.test))
    names = _varying(case.train)
    scaler = StandardScaler().fit(train[names])
    x, new = scaler.transform(train[names]), scaler.transform(test[names])
    constant = LinearRegression().fit(np.column_stack([x, train["w"]]), train["y"]).coef_[-1]
    arms = np.column_stack([_gp(x[train["w"] == arm], train["y"][train["w"] == arm], new) for arm in (0, 1)])
    treated = (test["w"] == 1).to_numpy()
    known = np.where(treated, test["y"] - arms[:, 0], arms[:, 1] - test["y"])
    ones = np.ones(len(test))
    return {
        "zero": scores(0 * ones, 0 * ones, case.test_truth),
        "constant": scores(constant * ones, constant * ones, case.test_truth),
        "pooled GP": scores(known, arms[:, 1] - arms[:, 0], case.test_truth),
    }


def _gp(x: np.ndarray, y: pd.Series, new: np.ndarray) -> np.ndarray:
    linear = ConstantKernel(0.1) * DotProduct(1.0)
    kernel = ConstantKernel(1.0) * RBF(np.sqrt(x.shape[1])) + linear + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=1, random_state=0)
    return model.fit(x, y).predict(new)


def run(options: argparse.Namespace) -> None:
    output = Path(options.output)
    done = pd.read_csv(output) if output.exists() else pd.DataFrame(columns=["replicate", "sites", "method"])
    rows = done.to_dict("records")
    for replicate in range(1, options.replicates + 1):
        if options.task == "ihdp":
            whole = ihdp(Path(options.ihdp), replicate)
        else:
            whole = synthetic(f"fedci-{options.task}", replicate, options.coefficient_seed)
        for sites in options.sites:
            if ((done["replicate"] == replicate) & (done["sites"] == sites)).any():
                continue
            case = whole.first(sites)
            found = {"fedci": fedci(case, {"seed": replicate}), **baselines(case)}
            rows += [
                {"replicate": replicate, "sites": sites, "method": name, **score}
                for name, score in found.items()
            ]
            pd.DataFrame(rows).to_csv(output, index=False)
            print(
                options.task,
                replicate,
                sites,
                {k: round(v, 2) for k, v in found["fedci"].items()},
                flush=True,
            )


def summary(files: list[str]) -> None:
    """Mean ± s.e. and median over replicates, by number of sites and method."""
    for file in files:
        table = pd.read_csv(file)
        print(f"\n{file}: {table['replicate'].nunique()} replicates")
        measured = [c for c in table.columns if c not in ("replicate", "sites", "method")]
        for (sites, method), cell in table.groupby(["sites", "method"]):
            parts = []
            for name in measured:
                values = cell[name].dropna()
                if len(values):
                    error = values.std(ddof=1) / np.sqrt(len(values))
                    parts.append(f"{name} {values.mean():.2f}±{error:.2f} ({values.median():.2f})")
            print(f"  {sites} sites, {method}: " + ", ".join(parts))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=["data1", "data2", "ihdp", "summary"])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--sites", type=int, nargs="+", default=[5])
    parser.add_argument("--coefficient-seed", type=int)
    parser.add_argument("--ihdp", help="folder of ihdp_npci_*.csv")
    parser.add_argument("--output", default="accuracy.csv")
    options = parser.parse_args()
    summary(options.files) if options.task == "summary" else run(options)


if __name__ == "__main__":
    main()
