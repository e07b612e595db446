"""Seconds (cold and warm), rounds, bytes and peak memory of a default fit, as rows per site grow.

    python benchmarks/cost.py                       the three sizes, each in a process of its own
    python benchmarks/cost.py --sites 5 --rows 50   one size

Cold: a new process that has compiled nothing before. Warm: the same fit again with another seed.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time

SIZES = ((5, 50), (5, 500), (3, 2000))


def measure(sites: int, rows: int, structure: str) -> str:
    import unpooled as up
    from unpooled.data.simulation import simulate

    made = simulate("fedci-data1", sites=sites, rows=rows, seed=1)
    frame = next(iter(made.frames.values()))
    study = up.Study(treatment="w", outcome="y", covariates=[c for c in frame if c.startswith("x")])
    seconds = []
    for seed in (1, 2):
        started = time.perf_counter()
        model = up.FedCI(seed=seed, structure=structure).fit(study, made.frames)
        seconds.append(time.perf_counter() - started)
    cost = model.result_.cost
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    sent = max(cost["bytes_up"].values()) / 1e6
    return (
        f"{structure:>10} {sites} x {rows:>5}: cold {seconds[0]:6.1f} s, warm {seconds[1]:6.1f} s, "
        f"{cost['rounds']} rounds, {sent:.1f} MB out of a site, peak memory {memory:.2f} GB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sites", type=int)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--structure", default="auto")
    options = parser.parse_args()
    if options.sites and options.rows:
        print(measure(options.sites, options.rows, options.structure), flush=True)
        return
    for sites, rows in SIZES:
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, __file__, "--sites", str(sites), "--rows", str(rows)]
            command += ["--structure", options.structure]
            subprocess.run(command, check=True, env={**os.environ, "JAX_COMPILATION_CACHE_DIR": cache})


if __name__ == "__main__":
    main()
