"""CPU seconds from a new process to an answer, and of further fits, beside pooled peers.

    python benchmarks/speed.py readme ihdp --ihdp FOLDER --repeat 3
    python benchmarks/speed.py --list
    python benchmarks/speed.py fedci-3x1000 fedci-3x10000 bcf-3x10000 --output speed.json
    python benchmarks/speed.py --plot speed.png --output speed.json   # a figure of what was measured so far
    PYTHONPATH=../earlier/src python benchmarks/speed.py readme      # an earlier version, for comparison

Every measurement is a process of its own. "Cold" starts with an empty compilation cache and ends with the
answer, imports included; "warm" is a further fit with another seed in the same process. Seconds are CPU
seconds of all threads, medians over the repetitions; "wall" is what a clock shows; memory is the peak.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

SPENT = ("cold", "warm", "wall", "peak_gb", "rounds", "programs")


def readme() -> Callable[[int], Any]:
    """The example of the README: 240 people at three sites."""
    import numpy as np
    import pandas as pd

    import unpooled as up

    random = np.random.default_rng(7)
    people = pd.DataFrame({"age": random.normal(50, 10, 240), "sex": random.integers(0, 2, 240)})
    people["region"] = random.choice(["north", "south", "east"], 240)
    people["quit"] = random.binomial(1, 1 / (1 + np.exp(-(people["age"] - 50) / 10)))
    people["weight"] = 0.1 * people["age"] + 3.0 * people["quit"] + random.normal(0, 1, 240)
    study = up.Study(treatment="quit", outcome="weight", covariates=["age", "sex"])
    sites = up.split(people, by="region")

    def fit(seed: int) -> Any:
        model = up.FedCI(structure="isotropic", draws=100, seed=seed).fit(study, sites)
        model.summary()
        model.effect(pd.DataFrame({"age": [45], "sex": [1]}), site="north")
        model.ite("north")
        return model

    return fit


def ihdp(folder: Path) -> Callable[[int], Any]:
    """FedCI's defaults on the first replicate of IHDP: three sites of 83."""
    import unpooled as up
    from unpooled.benchmark.cases import ihdp as case_of

    case = case_of(folder, 1)
    study = up.Study(treatment="w", outcome="y", covariates=case.covariates)
    return lambda seed: up.FedCI(seed=seed).fit(study, case.train)


def causal_rff() -> Callable[[int], Any]:
    """CausalRFF's defaults on the paper's simulation, three sites of 50; every seed draws new features."""
    import pandas as pd

    import unpooled as up
    from unpooled.data.simulation import simulate, varying

    made = simulate("causalrff-same", sites=3, rows=50, seed=1)
    study = up.Study(treatment="w", outcome="y", covariates=varying(pd.concat(made.frames.values())))
    return lambda seed: up.CausalRFF(seed=seed).fit(study, made.frames)


def causal_fi() -> Callable[[int], Any]:
    """CausalFI's defaults on the paper's simulation: three sites of 100, ten incomplete columns."""
    import pandas as pd

    import unpooled as up
    from unpooled.data.simulation import simulate, varying

    made = simulate("causalfi", sites=3, rows=100, seed=1)
    complete = varying(pd.concat(made.frames.values()).drop(columns=list(made.incomplete)))
    study = up.Study(treatment="w", outcome="y", covariates=complete, incomplete=made.incomplete)
    return lambda seed: up.CausalFI(seed=seed).fit(study, made.frames)


def gaps(missing: int = 18) -> Callable[[int], Any]:
    """CausalFI on 2,830 people at four sites, with 18 values missing: a number, a flag and a count."""
    import numpy as np
    import pandas as pd

    import unpooled as up

    rng, names = np.random.default_rng(3), [f"x{i}" for i in range(8)]
    x = rng.standard_normal((2830, 11))
    x[:, 9], x[:, 10] = x[:, 9] > 0.3, rng.poisson(np.exp(0.3 * x[:, 10]))
    treated = rng.random(2830) < 1 / (1 + np.exp(-0.5 * x[:, 8]))
    people = pd.DataFrame(x, columns=[*names, "u0", "u1", "u2"]).assign(w=treated.astype(int))
    people["y"] = x[:, 8] + 0.5 * x[:, 9] + treated + rng.standard_normal(2830)
    for place in range(missing):
        people.loc[rng.integers(2830), f"u{place % 3}"] = np.nan
    sites = up.split(people.assign(site=np.arange(2830) % 4), by="site")
    if not missing:
        study = up.Study(treatment="w", outcome="y", covariates=[*names, "u0", "u1", "u2"])
        return lambda seed: up.FedCI(seed=seed).fit(study, sites)
    study = up.Study(treatment="w", outcome="y", covariates=names, incomplete=["u0", "u1", "u2"])
    return lambda seed: up.CausalFI(seed=seed).fit(study, sites)


def people_of(sites: int, rows: int) -> Any:
    """Ten covariates, a smooth outcome, and an effect that varies: one table with a column `site`."""
    import numpy as np
    import pandas as pd

    rng, count = np.random.default_rng(5), sites * rows
    x = rng.standard_normal((count, 10))
    treated = rng.random(count) < 1 / (1 + np.exp(-0.5 * x[:, 0]))
    y = x[:, 0] + np.sin(x[:, 1]) + treated * (1.0 + 0.5 * x[:, 2]) + rng.standard_normal(count)
    table = pd.DataFrame(x, columns=[f"x{i}" for i in range(10)])
    return table.assign(w=treated.astype(int), y=y, site=np.arange(count) % sites)


def fedci(sites: int, rows: int, **settings: Any) -> Callable[[int], Any]:
    """FedCI's defaults, with ten covariates."""
    import unpooled as up

    tables = up.split(people_of(sites, rows), by="site")
    study = up.Study(treatment="w", outcome="y", covariates=[f"x{i}" for i in range(10)])
    return lambda seed: up.FedCI(seed=seed, **settings).fit(study, tables)


def bcf(sites: int, rows: int) -> Callable[[int], Any]:
    """stochtree's BCF on the stacked tables, 400 draws after a burn-in of 100."""
    from stochtree import BCFModel

    table = people_of(sites, rows)
    x, w, y = (table[names].to_numpy(float) for names in ([f"x{i}" for i in range(10)], "w", "y"))

    def fit(seed: int) -> Any:
        model = BCFModel()
        model.sample(
            X_train=x, Z_train=w, y_train=y, num_gfr=10, num_burnin=100, num_mcmc=400,
            general_params={"random_seed": seed},
        )  # fmt: skip
        return model

    return fit


def causal_forest(sites: int, rows: int) -> Callable[[int], Any]:
    """econml's CausalForestDML on the stacked tables, with random forests for its nuisances."""
    from econml.dml import CausalForestDML
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    table = people_of(sites, rows)
    x, w, y = (table[names].to_numpy(float) for names in ([f"x{i}" for i in range(10)], "w", "y"))

    def fit(seed: int) -> Any:
        model = CausalForestDML(
            model_y=RandomForestRegressor(min_samples_leaf=10, random_state=seed),
            model_t=RandomForestClassifier(min_samples_leaf=10, random_state=seed),
            discrete_treatment=True, n_estimators=400, random_state=seed,
        )  # fmt: skip
        model.fit(y, w, X=x)
        model.effect_interval(x[:1000])
        return model

    return fit


TABLE = """
import sys, numpy as np, pyarrow as pa
from pyarrow import parquet

path, rows, rng = sys.argv[1], int(sys.argv[2]), np.random.default_rng(11)
names = ["x0", "x1", "x2", "x3", "flag", "w", "y"]
kinds = dict.fromkeys(names, pa.float64()) | {"flag": pa.int8(), "w": pa.int8()}
with parquet.ParquetWriter(path, pa.schema(kinds.items())) as file:
    for start in range(0, rows, 1_000_000):
        count = min(1_000_000, rows - start)
        x, flag = rng.standard_normal((4, count)), rng.random(count) < 0.3
        w = rng.random(count) < 1 / (1 + np.exp(-0.5 * x[0] - 0.4 * (flag - 0.3)))
        y = x[0] + 0.5 * x[1] + 0.7 * flag + w * (1 + 0.5 * x[2]) + rng.standard_normal(count)
        file.write_table(pa.table([*x, flag.astype(np.int8), w.astype(np.int8), y], schema=file.schema))
"""


def parquet(rows: int, limited: bool = False) -> Callable[[int], Any]:
    """AIPW's defaults on a Parquet file, which is read in batches, beside a small site. The effect is 1.

    The file is made by another process, whose memory does not count.
    """
    import unpooled as up

    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    paths = {name: Path(folder.name) / f"{name}.parquet" for name in ("large", "small")}
    for path, count in zip(paths.values(), (rows, 2_000), strict=True):
        subprocess.run([sys.executable, "-c", TABLE, str(path), str(count)], check=True)
    study = up.Study(treatment="w", outcome="y", covariates=["x0", "x1", "x2", "x3", "flag"])

    def fit(seed: int) -> Any:
        limits = {"limits": up.Limits()} if limited else {}
        model = up.AIPW(seed=seed).fit(study, paths, **limits)
        print(model.estimates(), file=sys.stderr)
        return model

    return fit


CASES: dict[str, Callable[[Path], Callable[[int], Any]]] = {
    "readme": lambda folder: readme(),
    "ihdp": ihdp,
    "causal_rff": lambda folder: causal_rff(),
    "causal_fi": lambda folder: causal_fi(),
    "gaps": lambda folder: gaps(),
    "no-gaps": lambda folder: gaps(0),
    "parquet-3m": lambda folder: parquet(3_000_000),
    "parquet-20m": lambda folder: parquet(20_000_000),
    "parquet-20m-limits": lambda folder: parquet(20_000_000, limited=True),
    **{
        f"{name}-{sites}x{rows}": lambda folder, make=make, sites=sites, rows=rows: make(sites, rows)
        for name, make in {"fedci": fedci, "bcf": bcf, "causal_forest": causal_forest}.items()
        for sites, rows in (
            (3, 1_000), (3, 10_000), (3, 100_000), (3, 333_000), (10, 1_000), (100, 1_000), (1_000, 1_000)
        )
    },
}  # fmt: skip


def measure(name: str, folder: Path, warm: bool) -> dict[str, float]:
    """Measure one case in this process."""
    warnings.simplefilter("ignore")
    started, programs = time.perf_counter(), [0]
    fit = CASES[name](folder)
    if not name.startswith(("bcf", "causal_forest")):
        import jax.monitoring

        def count(event: str, *_: object, **__: object) -> None:
            programs[0] += event == "/jax/core/compile/backend_compile_duration"

        jax.monitoring.register_event_duration_secs_listener(count)
    model = fit(0)
    found = {"cold": time.process_time(), "wall": time.perf_counter() - started, "programs": programs[0]}
    if hasattr(model, "result_"):
        found["rounds"] = model.result_.cost.rounds
    if warm:
        before = time.process_time()
        fit(1)
        found["warm"] = time.process_time() - before
    return found | {"peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}


def apart(name: str, options: argparse.Namespace) -> dict[str, float]:
    """Measure one case in a new process with an empty compilation cache."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, __file__, name, "--here", "--ihdp", str(options.ihdp)]
        command += [] if options.warm else ["--no-warm"]
        environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": cache}
        done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


NAMES = {"fedci": "FedCI", "bcf": "BCF (stochtree)", "causal_forest": "causal forest (econml)"}


def plot(found: dict[str, dict[str, float]], path: Path) -> None:
    """CPU seconds of a first fit against people at three sites, and against sites of 1,000 people."""
    import matplotlib

    matplotlib.use("Agg")
    import numpy as np
    from matplotlib import pyplot as plt

    figure, both = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained", sharey=True)
    kept = {
        (name, *map(int, size.split("x"))): one["cold"]
        for name, size, one in ((*case.rpartition("-")[::2], one) for case, one in found.items())
        if name in NAMES
    }
    for name, words in NAMES.items():
        rows = sorted((3 * n, cost) for (method, m, n), cost in kept.items() if method == name and m == 3)
        sites = sorted((m, cost) for (method, m, n), cost in kept.items() if method == name and n == 1_000)
        for axes, points, named in ((both[0], rows, words), (both[1], sites, words)):
            if len(points) > 1:
                x, y = np.array(points).T
                slope = np.log(y[-1] / y[-2]) / np.log(x[-1] / x[-2])
                axes.plot(x, y, marker="o", label=f"{named}: last slope {slope:.2f}")
    both[0].set(xlabel="people, at three sites", ylabel="CPU seconds, first fit")
    both[1].set(xlabel="sites of 1,000 people")
    for axes in both:
        axes.set(xscale="log", yscale="log")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="cases; see --list")
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--ihdp", type=Path, default=Path("ihdp"), help="folder of the IHDP files")
    parser.add_argument("--warm", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--output", type=Path, help="file to which the measurements are added, as JSON")
    parser.add_argument("--plot", type=Path, help="file for a figure of the measurements in --output")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.list:
        print("\n".join(CASES))
        return
    for name in options.cases:
        if name not in CASES:
            parser.error(f"no case '{name}'; --list shows them")
        if options.here:
            print(json.dumps(measure(name, options.ihdp, options.warm)))
            continue
        runs = [apart(name, options) for _ in range(options.repeat)]
        cells = [f"{key} {median(run[key] for run in runs):.4g}" for key in SPENT if key in runs[0]]
        print(f"{name:24s}", ", ".join(cells), flush=True)
        if options.output:
            known = json.loads(options.output.read_text()) if options.output.exists() else {}
            known[name] = {key: median(run[key] for run in runs) for key in runs[0]}
            options.output.write_text(json.dumps(known, indent=1))
    if options.plot:
        plot(json.loads(options.output.read_text()), options.plot)


if __name__ == "__main__":
    main()
