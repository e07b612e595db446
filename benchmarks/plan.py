"""The expected cost of studies beside the measured one: rounds, megabytes out of and into a site, seconds.

    python benchmarks/plan.py                             # all cases, each in a process of its own
    python benchmarks/plan.py fedci-3x300 aipw-3x1000
    python benchmarks/plan.py --list
    python benchmarks/plan.py --sizes                     # the table of docs/deployment.md

"Expected" is what `unpooled plan` says, a range if the data decide; "measured" is a real run in one process,
with an empty compilation cache. Seconds are CPU seconds of all threads; of cases named "nvflare", which run
a rehearsal with three site processes on this machine, seconds of a clock. The ratio is measured over the
nearest end of the range, 1 within it.
Most constants of the cost model were chosen on these very cases, so the agreement is not that of new data:
see `expected` of the methods, and `Speeds` in `unpooled.diagnostics.expected_cost`, for what each rests on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from speed import people_of

Made = tuple[Any, Any]
COUNTED = ("rounds", "MB out", "MB in", "seconds")


def ten_covariates(sites: int, rows: int, method: str, **settings: Any) -> Made:
    """The data of benchmarks/speed.py."""
    import unpooled as up

    names = [f"x{i}" for i in range(10)]
    described = {"name": method, **settings}
    study = up.Study(treatment="w", outcome="y", covariates=names, method=described)
    return study, up.split(people_of(sites, rows), by="site")


def simulated(name: str, sites: int, rows: int, method: str, seed: int = 1, **options: Any) -> Made:
    """A simulation of the papers."""
    import pandas as pd

    import unpooled as up
    from unpooled.data.simulation import simulate, varying

    made = simulate(name, sites=sites, rows=rows, seed=seed, **options)
    complete = varying(pd.concat(made.frames.values()).drop(columns=list(made.incomplete)))
    columns = {"covariates": complete, "incomplete": made.incomplete}
    return up.Study(treatment="w", outcome="y", **columns, method={"name": method}), made.frames


CASES: dict[str, Callable[[], Made]] = {
    "aipw-3x1000": lambda: ten_covariates(3, 1_000, "aipw"),
    "aipw-3x100000": lambda: ten_covariates(3, 100_000, "aipw"),
    "ipw-3x1000": lambda: ten_covariates(3, 1_000, "aipw", estimator="ipw"),
    "meta_analysis-3x1000": lambda: ten_covariates(3, 1_000, "meta_analysis"),
    "fedci-3x100": lambda: ten_covariates(3, 100, "fedci"),
    "fedci-3x300": lambda: ten_covariates(3, 300, "fedci"),
    "fedci-3x3000": lambda: ten_covariates(3, 3_000, "fedci"),
    "fedci-3x6000": lambda: ten_covariates(3, 6_000, "fedci"),
    "fedci-5x200": lambda: simulated("fedci-data1", 5, 200, "fedci", 3, dimension=20),
    "fedci-100x100": lambda: ten_covariates(100, 100, "fedci"),
    "fedci-variational-3x100": lambda: ten_covariates(3, 100, "fedci", inference="variational"),
    "causal_rff-3x50": lambda: simulated("causalrff-same", 3, 50, "causal_rff"),
    "causal_fi-3x100": lambda: simulated("causalfi", 3, 100, "causal_fi"),
    "nvflare-fedci-3x300": lambda: ten_covariates(3, 300, "fedci"),
}


def measured(study: Any, tables: Any) -> dict[str, float]:
    """A real run in this process."""
    from unpooled.coordinator.run import run_study
    from unpooled.disclosure.limits import NONE
    from unpooled.engines.in_process import InProcess, open_sites

    started = time.process_time()
    cost = run_study(study, InProcess(open_sites(study, tables, NONE))).cost
    spent = time.process_time() - started
    return _counted(cost.rounds, max(cost.bytes_up.values()), max(cost.bytes_down.values()), spent)


def rehearsed(study: Any, tables: Any) -> dict[str, float]:
    """A real run over NVIDIA FLARE: a coordinator and a process for each site, on this machine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [f'[columns]\ntreatment = "w"\noutcome = "y"\ncovariates = {list(study.columns.covariates)}']
        lines += [f'[study]\nname = "planned"\ndiagnostics = false\n[method]\nname = "{study.method.name}"']
        for site, table in tables.items():
            table.to_csv(folder / f"{site}.csv", index=False)
            lines.append(f'[sites.s{site}]\npath = "{site}.csv"')
        (folder / "study.toml").write_text("\n".join(lines))
        program = "from unpooled.cli.app import main; main()"
        words = ["rehearse", str(folder / "study.toml"), "--output", str(folder / "rehearsal"), "--quiet"]
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", program, *words], check=True, stdout=sys.stderr)
        spent = time.perf_counter() - started
        (journal,) = folder.rglob("journal.jsonl")
        rounds = [json.loads(line)["bytes"] for line in journal.read_text().splitlines()]
    out, into = (max(sum(one[site][way] for one in rounds) for site in rounds[0]) for way in ("up", "down"))
    return _counted(len(rounds), out, into, spent)


def expected(study: Any, tables: Any, *, nvflare: bool) -> list[dict[str, float]]:
    """The shortest and the longest course; with one core, seconds are those of all sites together."""
    from unpooled.diagnostics.expected_cost import expected_cost

    found = expected_cost(study, tables, engine="nvflare" if nvflare else "in-process", cores=1)
    return [
        _counted(one.rounds, one.bytes_out, one.bytes_in, sum(one.seconds.values()))
        for one in (found, found.longest or found)
    ]


def _counted(rounds: int, out: float, into: float, seconds: float) -> dict[str, float]:
    return dict(zip(COUNTED, (rounds, out / 1e6, into / 1e6, seconds), strict=True))


def compare(name: str) -> dict[str, Any]:
    """Expected and measured cost of one case, in this process."""
    warnings.simplefilter("ignore")
    study, tables = CASES[name]()
    nvflare = name.startswith("nvflare")
    ends = expected(study, tables, nvflare=nvflare)
    return {"expected": ends, "measured": (rehearsed if nvflare else measured)(study, tables)}


def apart(name: str) -> dict[str, Any]:
    """The same in a new process with an empty compilation cache."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": cache}
        command = [sys.executable, __file__, name, "--here"]
        done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def line(name: str, found: dict[str, Any]) -> str:
    """One line of the table: expected, measured, and their ratio."""
    cells = []
    for what in COUNTED:
        low, high = sorted(one[what] for one in found["expected"])
        seen = found["measured"][what]
        ratio = seen / min(max(seen, low), high)
        ends = " to ".join(dict.fromkeys(f"{end:.3g}" for end in (low, high)))
        cells.append(f"{what} {ends}, {seen:.3g} ({ratio:.2f})")
    return f"{name:24s} " + "; ".join(cells)


def sizes() -> None:
    """The expected cost of studies of up to 10,000 sites and 100,000,000 people, over NVIDIA FLARE."""
    import unpooled as up
    from unpooled.cli.plan import WORDS, ends_of
    from unpooled.diagnostics.expected_cost import expected_cost
    from unpooled.diagnostics.stand_ins import Size

    print("| method | sites × people | rounds | MB out of a site | MB into it | hours | most of the time |")
    print("|---|---|---|---|---|---|---|")
    for name, title in (("aipw", "AIPW"), ("fedci", "FedCI")):
        study = up.Study(
            treatment="w", outcome="y", covariates=["x"], method={"name": name}, diagnostics=True
        )
        for sites, rows in ((10, 10_000), (100, 10_000), (1_000, 10_000), (10_000, 10_000)):
            found = expected_cost(study, size=Size(sites, rows, 30), engine="nvflare")
            rounds, out, into, hours = ends_of(found, hours=True)
            most = WORDS[(found.longest or found).dominates]
            print(
                f"| {title} | {sites:,} × {rows:,} | {rounds} | {out} | {into} | {hours} | {most} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="cases; by default all")
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("--sizes", action="store_true", help="the expected cost of large studies")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.list:
        print("\n".join(CASES))
        return
    if options.sizes:
        sizes()
        return
    for name in options.cases or CASES:
        if name not in CASES:
            parser.error(f"no case '{name}'; --list shows them")
        if options.here:
            print(json.dumps(compare(name)))
        else:
            print(line(name, apart(name)), flush=True)


if __name__ == "__main__":
    main()
