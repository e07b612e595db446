"""The cells of a table, one after another; whoever iterates owns the loop and shows the progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from unpooled.benchmark.cases import Case
from unpooled.benchmark.contenders import ARRANGEMENTS, Contender, find
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


def cells(
    *,
    contenders: Sequence[str],
    sites: Sequence[int],
    replicates: int,
    arrangements: Sequence[str] = ARRANGEMENTS,
) -> list[Cell]:
    """Replicates outermost: a run that is stopped has the same replicates of everybody."""
    found = [find(name) for name in contenders]
    return [
        Cell(contender, arrangement, count, replicate)
        for replicate in range(1, replicates + 1)
        for count in sites
        for contender in found
        if contender.missing() is None
        for arrangement in contender.arrangements
        if arrangement in arrangements
        # With one site every arrangement is the same.
        if count > 1 or arrangement == contender.arrangements[0]
    ]


def run(table: Table, todo: Sequence[Cell], store: Store, folder: Path | None) -> Iterator[dict[str, Any]]:
    """Run the cells that are not done; each finished one is stored, then told."""
    make = lru_cache(maxsize=1)(lambda replicate: table.case(replicate, folder))
    cut = lru_cache(maxsize=1)(lambda replicate, sites: make(replicate).first(sites))
    for cell in todo:
        if store.has(**cell.key):
            continue
        measured = _measure(cell, cut(cell.replicate, cell.sites))
        row = {"table": table.name, **cell.key, "seed": cell.replicate, **measured}
        store.add(row)
        yield row


def _measure(cell: Cell, case: Case) -> dict[str, Any]:
    """Scores and cost of a cell; a contender that fails is a row that says so, not a gap."""
    with peak_memory() as memory:
        try:
            cell.contender.require_taken(case)
            estimate, cost = cell.contender.estimator()(case, cell.arrangement, cell.replicate)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"[:300]}
    scores = score(estimate, case.test_truth, case.train_truth)
    return {**scores, **cost, "peak_gb": memory.gigabytes}
