"""Run the cells of a table one after another, and keep the finished ones in a Parquet file per table.

`run` is a generator: its caller owns the loop and shows the progress.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pandas as pd

from unpooled.benchmark.cases import Case
from unpooled.benchmark.contenders import ARRANGEMENTS, Contender, find
from unpooled.benchmark.scores import score
from unpooled.benchmark.tables import BenchmarkTable

KEY = ("contender", "arrangement", "sites", "replicate")
_VERSIONS = ("unpooled", "jax", "numpy", "scikit-learn", "econml", "stochtree")
_RESET, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


@dataclass(frozen=True)
class Cell:
    """One contender on one case."""

    contender: Contender
    arrangement: str
    sites: int
    replicate: int

    @property
    def key(self) -> dict[str, str | int]:
        return {
            "contender": self.contender.name,
            "arrangement": self.arrangement,
            "sites": self.sites,
            "replicate": self.replicate,
        }


class CellStore:
    """The finished cells of one table, in a Parquet file that is appended to."""

    def __init__(self, folder: Path, table: str) -> None:
        self.path = folder / f"{table}.parquet"
        self.cells = (
            pd.read_parquet(self.path) if self.path.exists() else pd.DataFrame(columns=[*KEY, "error"])
        )

    def has(self, **key: str | int) -> bool:
        """Whether a cell is finished; a cell that failed is run again."""
        return bool((self._same(key) & pd.isna(self.cells["error"])).any())

    def add(self, row: Mapping[str, object]) -> None:
        """Store a cell; the file is replaced as a whole, so an interruption leaves the old one intact."""
        new = pd.DataFrame([{"error": None, **row, **versions()}])
        kept = self.cells.loc[~self._same(row)]
        self.cells = pd.concat([kept, new], ignore_index=True) if len(kept) else new
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".new")
        self.cells.to_parquet(beside, index=False)
        beside.replace(self.path)

    def _same(self, key: Mapping[str, object]) -> np.ndarray:
        return np.logical_and.reduce([np.asarray(self.cells[name] == key[name]) for name in KEY])


def versions() -> dict[str, str]:
    """The versions of the packages that produced the numbers."""
    return {f"version_{name}": found for name in _VERSIONS if (found := _version(name))}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cells(
    *,
    contenders: Sequence[str],
    sites: Sequence[int],
    replicates: int | Sequence[int],
    arrangements: Sequence[str] = ARRANGEMENTS,
) -> list[Cell]:
    """The cells to run, replicate by replicate, so that an interrupted run has the same ones of everybody."""
    found = [find(name) for name in contenders]
    chosen = range(1, replicates + 1) if isinstance(replicates, int) else replicates
    return [
        Cell(contender, arrangement, count, replicate)
        for replicate in chosen
        for count in sites
        for contender in found
        if contender.missing() is None
        for arrangement in contender.arrangements
        if arrangement in arrangements
        # With one site all arrangements are the same.
        if count > 1 or arrangement == contender.arrangements[0]
    ]


def run(
    table: BenchmarkTable, todo: Sequence[Cell], store: CellStore, folder: Path | None
) -> Iterator[dict[str, object]]:
    """Run the cells that are not finished; each one is stored, then yielded as a row."""
    make = lru_cache(maxsize=1)(lambda replicate: table.case(replicate, folder))
    first = lru_cache(maxsize=1)(lambda replicate, sites: make(replicate).first(sites))
    for cell in todo:
        if store.has(**cell.key):
            continue
        measured = _measure(cell, first(cell.replicate, cell.sites))
        row = {"table": table.name, **cell.key, "seed": cell.replicate, **measured}
        store.add(row)
        yield row


def _measure(cell: Cell, case: Case) -> dict[str, object]:
    """The scores and the cost of a cell, or the error with which its contender failed."""
    with peak_memory() as memory:
        try:
            cell.contender.require_taken(case)
            started = time.process_time()
            estimate, cost = cell.contender.estimator()(case, cell.arrangement, cell.replicate)
            cost["cpu_seconds"] = time.process_time() - started
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"[:300]}
    scores = score(estimate, case.test_truth, case.train_truth)
    return {**scores, **cost, "peak_gb": memory.gigabytes}


@dataclass
class PeakMemory:
    """Filled in when `peak_memory` ends."""

    gigabytes: float = float("nan")


@contextmanager
def peak_memory() -> Iterator[PeakMemory]:
    """Measure the peak resident memory of a block; NaN on systems other than Linux."""
    memory = PeakMemory()
    try:
        _RESET.write_text("5")
    except OSError:
        yield memory
        return
    yield memory
    lines = [line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM")]
    memory.gigabytes = float(lines[0].split()[1]) / 1e6 if lines else float("nan")
