"""People who are at several sites: how long it takes to find them, and what ignoring them does to intervals.

    python benchmarks/duplicates.py time [--sites 4] [--rows 100000] [--share 0.03]
    python benchmarks/duplicates.py coverage [--fits 200] [--first 1000]

`time` draws nine-digit numbers for every site, of which a share is at another site too, and finds them by the
protocol of a study. It prints seconds, CPU seconds and megabytes, and compares what was found with the truth.

`coverage` simulates studies of four sites in which a tenth of the people are at several sites, with the same
record everywhere, and fits AIPW with and without them. It prints the coverage of 95 % intervals of the
population's average effect with its Monte Carlo error, their mean width, and the bias.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import pandas as pd

import unpooled as up
from unpooled.coordinator.duplicates import Copies, leave_out_copies
from unpooled.coordinator.rounds import Conduct
from unpooled.diagnostics.duplicates import too_narrow
from unpooled.disclosure.limits import NONE
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import FailedCheckWarning

ROLES = {"treatment": "w", "outcome": "y", "covariates": ["x"], "id": "number"}
SITES, PEOPLE, TENTH = 4, 2_000, 0.1


def timed(sites: int, rows: int, share: float) -> None:
    """Find the people whom each site shares with the next."""
    random = np.random.default_rng(0)
    common = round(share * rows)
    numbers = random.choice(10**9, sites * rows, replace=False).reshape(sites, rows)
    for place in range(sites):
        numbers[place, :common] = numbers[(place + 1) % sites, rows - common :]
    tables = {
        f"site{place}": pd.DataFrame({"number": own, "x": 0.0, "w": own % 2, "y": 0.0})
        for place, own in enumerate(numbers)
    }
    study = up.Study(**ROLES)
    engine = InProcess(open_sites(study, tables, NONE))
    wall, cpu = time.perf_counter(), time.process_time()
    conduct = Conduct(leave_out_copies(study), engine)
    sent = 0
    for happened in conduct:
        sent += sum(traffic.up for traffic in happened.traffic.values())
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    found: Copies | None = conduct.result
    assert found is not None
    truth = np.unique(numbers, return_counts=True)[1]
    left = np.concatenate([site.frame["number"] for site in engine._sites.values()])
    print(f"{sites} sites of {rows:,} people: {wall:.0f} s, {cpu:.0f} CPU seconds, {sent / 1e6:.0f} MB out")
    print(f"people at several sites: {np.sum(truth > 1):,}; found: {sum(found.overlaps.values()):,}")
    print(f"rows that remain: {len(left):,} of {len(np.unique(left)):,} people, of {len(truth):,} in all")


def people(random: np.random.Generator, *, copies: int, selected: bool) -> dict[str, pd.DataFrame]:
    """Sites that share a tenth of all people, at random or those with large x, whose effects are larger."""
    x = random.normal(size=PEOPLE)
    w = random.binomial(1, 1 / (1 + np.exp(-0.5 * x)))
    y = x + w * (1 + x) + random.normal(size=PEOPLE)
    table = pd.DataFrame({"number": np.arange(PEOPLE), "x": x, "w": w, "y": y})
    ranks = np.argsort(np.argsort(-x)) if selected else random.permutation(PEOPLE)
    at = 1 + (copies - 1) * (ranks < TENTH * PEOPLE)
    first = random.integers(0, SITES, PEOPLE)
    return {f"site{place}": table[(place - first) % SITES < at] for place in range(SITES)}


def coverage(fits: int, first: int) -> None:
    for copies, selected in ((2, False), (SITES, False), (SITES, True)):
        for duplicates in ("ignore", "keyed hash"):
            study = up.Study(**ROLES, privacy={"duplicates": duplicates})
            found = []
            for seed in range(first, first + fits):
                tables = people(np.random.default_rng(seed), copies=copies, selected=selected)
                model = up.AIPW(seed=seed).fit(study, tables)
                found.append((model.ate() - 1.0, *(end - 1.0 for end in model.ate_interval())))
            error, lower, upper = np.array(found).T
            covered = np.mean((lower < 0) & (upper > 0))
            who = "with the largest x" if selected else "at random"
            print(
                f"a tenth of the people {who} at {copies} sites, {duplicates}: coverage {covered:.3f} "
                f"± {np.sqrt(covered * (1 - covered) / fits):.3f}, width {np.mean(upper - lower):.3f}, "
                f"bias {error.mean():+.3f}, sd {error.std():.3f}",
                flush=True,
            )
        counts = np.repeat([1, copies], [round((1 - TENTH) * PEOPLE), round(TENTH * PEOPLE)])
        print(f"  errors are expected to be {too_narrow(counts):.2f} times as large as ignoring says")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("time", "coverage"))
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--share", type=float, default=0.03)
    parser.add_argument("--fits", type=int, default=200)
    parser.add_argument("--first", type=int, default=1000)
    given = parser.parse_args()
    warnings.simplefilter("ignore", FailedCheckWarning)
    if given.what == "time":
        timed(given.sites, given.rows, given.share)
    else:
        coverage(given.fits, given.first)


if __name__ == "__main__":
    main()
