"""The cells of a table, one after another; whoever iterates owns the loop and shows the progress."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unpooled.benchmark.contenders import Contender, find
from unpooled.benchmark.memory import peak_memory
from unpooled.benchmark.scores import score
from unpooled.benchmark.store import Store
from unpooled.benchmark.tables import Table


@dataclass(frozen=True)
class Cell:
    """One contender on one case."""

    contender: Contender
    arrangement: str
    sites: int
    replicate: int

    @property
    def key(self) -> dict[str, Any]:
        return {
            "contender": self.contender.name,
            "arrangement": self.arrangement,
            "sites": self.sites,
            "replicate": self.replicate,
        }


def cells(table: Table, *, contenders: Sequence[str], sites: Sequence[int], replicates: int) -> list[Cell]:
    """Replicates outermost: a run that is stopped has the same replicates of everybody."""
    found = [find(name) for name in contenders]
    return [
        Cell(contender, arrangement, count, replicate)
        for replicate in range(1, replicates + 1)
        for count in sites
        for contender in found
        if contender.missing() is None
        for arrangement in contender.arrangements
        # With one site every arrangement is the same.
        if count > 1 or arrangement == contender.arrangements[0]
    ]


def run(table: Table, todo: Sequence[Cell], store: Store, folder: Path | None) -> Iterator[dict[str, Any]]:
    """Run the cells that are not done; each finished one is stored, then told."""
    case, made_for = None, None
    for cell in todo:
        if store.has(**cell.key):
            continue
        if made_for != cell.replicate:
            case, made_for = table.case(cell.replicate, folder), cell.replicate
        assert case is not None
        row = {
            "table": table.name,
            **cell.key,
            "seed": cell.replicate,
            **_measure(cell, case.first(cell.sites)),
        }
        store.add(row)
        yield row


def _measure(cell: Cell, case: Any) -> dict[str, Any]:
    """Scores and cost of a cell; a contender that fails is a row that says so, not a gap."""
    started = time.perf_counter()
    with peak_memory() as memory:
        try:
            estimate, cost = cell.contender.estimator()(case, cell.arrangement, cell.replicate)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"[:300]}
    seconds = time.perf_counter() - started
    scores = score(estimate, case.test_truth, case.train_truth)
    return {**scores, **cost, "seconds": seconds, "peak_gb": memory.gigabytes}
