"""The summary of finished cells that is committed with the page, from which its tables are written.

An entry holds mean, standard error and median of each measure over a set of replicates. A set is part of
what identifies an entry, because means over different replicates are not comparable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from unpooled.benchmark.comparison import mean_error_median
from unpooled.benchmark.runner import CellStore
from unpooled.benchmark.tables import TABLES
from unpooled.errors import ResultsError

MEASURES = (
    *("imputation", "prediction", "conditional", "ate_error", "in_sample_ate_error", "ate_sd"),
    *("cate_95_coverage", "conditional_95_coverage", "ate_95_coverage", "rounds", "megabytes"),
)
"""What an entry holds; seconds are left out, because the machine is not the same from run to run."""
_PLACE = ("table", "contender", "arrangement", "sites")
DIGITS = 5
Number = tuple[float, float, float]
"""Mean, standard error and median; NaN where there is none."""


@dataclass(frozen=True)
class Entry:
    """One contender on the same replicates of a table."""

    table: str
    contender: str
    arrangement: str
    sites: int
    replicates: tuple[int, ...]
    measures: dict[str, Number]

    @property
    def key(self) -> tuple[str, str, str, int, tuple[int, ...]]:
        return self.table, self.contender, self.arrangement, self.sites, self.replicates


@dataclass(frozen=True)
class Quoted:
    """A published error that the page quotes for comparison."""

    table: str
    contender: str
    arrangement: str
    sites: int
    value: str


@dataclass(frozen=True)
class Summary:
    """All entries, and the published errors that are quoted beside them."""

    entries: tuple[Entry, ...]
    quoted: tuple[Quoted, ...]

    def updated(self, new: Iterable[Entry]) -> Summary:
        """With new entries in place of those of the same replicates."""
        known = {entry.key: entry for entry in self.entries} | {entry.key: entry for entry in new}
        return Summary(tuple(known.values()), self.quoted)


def read(path: Path) -> Summary:
    """The summary in a file; its values are mean, standard error and median, null where there is none."""
    if not path.exists():
        raise ResultsError(
            "the page's tables need a summary of cells",
            found=f"no file {path}",
            remedy="give it with --summary, and cells to summarise with --store",
        )
    stored = json.loads(path.read_text(encoding="utf-8"))
    entries = [
        Entry(
            **{name: row[name] for name in _PLACE},
            replicates=numbers(row["replicates"]),
            measures={name: _number(row[name]) for name in MEASURES if name in row},
        )
        for row in stored["cells"]
    ]
    return Summary(tuple(entries), tuple(Quoted(**row) for row in stored["quoted"]))


def write(summary: Summary, path: Path) -> None:
    """One line per entry, in the order of the tables, so that changes are easy to see."""
    order = {name: place for place, name in enumerate(TABLES)}
    entries = sorted(summary.entries, key=lambda entry: (order.get(entry.table, len(order)), *entry.key))
    cells = [
        {
            **{name: getattr(entry, name) for name in _PLACE},
            "replicates": ranges(entry.replicates),
            **{name: [_rounded(part) for part in value] for name, value in entry.measures.items()},
        }
        for entry in entries
    ]
    quoted = [vars(one) for one in summary.quoted]
    parts = (
        f'"{name}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]"
        for name, rows in (("cells", cells), ("quoted", quoted))
    )
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def _number(value: list[float | None]) -> Number:
    mean, error, median = (float("nan") if part is None else part for part in value)
    return mean, error, median


def _rounded(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None


def ranges(replicates: tuple[int, ...]) -> str:
    """Replicates as text.

    >>> ranges((1, 2, 3, 11)), numbers("1-3 11")
    ('1-3 11', (1, 2, 3, 11))
    """
    found = np.array(replicates)
    runs = np.split(found, np.flatnonzero(np.diff(found) > 1) + 1)
    return " ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def numbers(text: str) -> tuple[int, ...]:
    """The replicates of a text such as "1-3 11"."""
    ends = [[int(end) for end in part.split("-")] for part in text.split()]
    return tuple(number for end in ends for number in range(end[0], end[-1] + 1))


def of_store(folder: Path) -> list[Entry]:
    """The entries of all tables in a store.

    A contender has an entry for the replicates that it has finished. The table's own method also has one for
    each set of replicates that another contender has finished, so that both can be compared.
    """
    return [
        entry
        for name in TABLES
        if not (cells := CellStore(folder, name).cells).empty
        for entry in of_cells(name, cells)
    ]


def of_cells(table: str, cells: pd.DataFrame) -> list[Entry]:
    """The entries of one table's finished cells."""
    done = cells.loc[pd.isna(cells["error"])]
    groups = {
        key: pd.DataFrame(group).set_index("replicate").sort_index()
        for key, group in done.groupby(["contender", "arrangement", "sites"], sort=False)
    }
    found = []
    for (contender, arrangement, sites), group in groups.items():
        sets = {tuple(int(number) for number in group.index)}
        if contender == TABLES[table].method:
            others = (frame.index for key, frame in groups.items() if key[2] == sites)
            sets |= {
                tuple(int(number) for number in index) for index in others if set(index) <= set(group.index)
            }
        found += [
            Entry(table, contender, arrangement, int(sites), chosen, _measures(group.loc[list(chosen)]))
            for chosen in sorted(sets)
        ]
    return found


def _measures(group: pd.DataFrame) -> dict[str, Number]:
    values = {name: mean_error_median(group, name) for name in MEASURES}
    return {name: value for name, value in values.items() if np.isfinite(value[0])}
