"""Time, rounds, bytes and memory of a fit, by the number of rows, sites or covariates.

    python benchmarks/cost.py rows --output costs        5 sites x 20 covariates, 50 ... 200,000 rows a site
    python benchmarks/cost.py sites --output costs       50 rows a site, 1 ... 200 sites
    python benchmarks/cost.py covariates --output costs  5 sites x 200 rows, 5 ... 80 covariates
    python benchmarks/cost.py default --output costs     the default settings at three sizes
    python benchmarks/cost.py rff-sites --output costs   CausalRFF, 50 rows a site, 5 ... 100 sites
    python benchmarks/cost.py rff-rows --output costs    CausalRFF, 5 sites, 50 ... 20,000 rows a site

Every point is measured in its own process. "Cold" is the first fit, including compilation; "warm" is the
median of further fits with other seeds. Points that are already in the CSV of the output folder are not
measured again. At the end the curve is drawn.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

CURVES = {
    "rows": [
        {"sites": 5, "rows": rows, "covariates": 20, "structure": "projection"}
        for rows in (50, 500, 2_000, 20_000, 200_000)
    ],
    "sites": [
        {"sites": sites, "rows": 50, "covariates": 20, "structure": "auto"} for sites in (1, 5, 20, 50, 200)
    ],
    "covariates": [
        {"sites": 5, "rows": 200, "covariates": d, "structure": "auto"} for d in (5, 10, 20, 40, 80)
    ],
    "default": [
        {"sites": sites, "rows": rows, "covariates": 20, "structure": "auto"}
        for sites, rows in ((5, 50), (5, 500), (3, 2_000))
    ],
    "rff-sites": [{"sites": sites, "rows": 50} for sites in (5, 20, 50, 100)],
    "rff-rows": [{"sites": 5, "rows": rows} for rows in (50, 500, 2_000, 20_000)],
}
LONG = 150.0
"""If the cold fit takes longer than this many seconds, compilation is a small part of it: no warm fits."""


def measure(sites: int, rows: int, **fedci: Any) -> dict[str, float]:
    """Measure one point in this process: FedCI if covariates and structure are given, else CausalRFF."""
    import unpooled as up
    from unpooled.data.simulation import simulate, varying

    if fedci:
        made = simulate("fedci-data1", sites=sites, rows=rows, seed=1, dimension=fedci["covariates"])
    else:
        made = simulate("causalrff-same", sites=sites, rows=rows, seed=1)
    covariates = varying(pd.concat(made.frames.values()))
    study = up.Study(treatment="w", outcome="y", covariates=covariates)
    seconds = []
    while len(seconds) < (1 if seconds and seconds[0] > LONG else 4):
        seed = len(seconds)
        model = up.FedCI(seed=seed, structure=fedci["structure"]) if fedci else up.CausalRFF(seed=seed)
        started = time.perf_counter()
        model.fit(study, made.frames)
        seconds.append(time.perf_counter() - started)
    cost = model.result_.cost
    return {
        "cold_seconds": seconds[0],
        "warm_seconds": median(seconds[1:] or seconds),
        "rounds": cost.rounds,
        "megabytes": max(cost.bytes_up.values()) / 1e6,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def measure_apart(point: dict) -> dict:
    """Measure one point in a new process with an empty compilation cache."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, __file__, "--point", json.dumps(point)]
        environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": cache}
        done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    return {**point, **json.loads(done.stdout.splitlines()[-1])}


def curve(name: str, folder: Path) -> None:
    """Measure the missing points, then draw the curve."""
    from unpooled.report.figure_files import keep
    from unpooled.report.figures.costs import cost_curve

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"cost-{name}.csv"
    found = pd.read_csv(path).to_dict("records") if path.exists() else []
    for point in CURVES[name]:
        if any(all(done[key] == value for key, value in point.items()) for done in found):
            continue
        found.append(measure_apart(point))
        pd.DataFrame(found).to_csv(path, index=False)
        print(json.dumps(found[-1]), flush=True)
    if name != "default":
        growing = name.removeprefix("rff-")
        keep(cost_curve(pd.DataFrame(found), growing=growing), pd.DataFrame(found), path.with_suffix(".png"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("curve", nargs="?", choices=list(CURVES))
    parser.add_argument("--output", type=Path, default=Path("costs"))
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        print(json.dumps(measure(**json.loads(options.point))))
    elif options.curve:
        curve(options.curve, options.output)
    else:
        parser.error("name a curve: " + ", ".join(CURVES))


if __name__ == "__main__":
    main()
