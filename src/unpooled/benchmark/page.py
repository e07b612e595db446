"""Tables of a page, written between its markers from the summary of cells; the prose is left alone.

A marker names a layout, tables of the benchmark, and what to show:

    <!-- table: cells fedci-data1 sites=5 replicates=1-10 columns=prediction,ate_error -->
    <!-- table: grid causalrff-same replicates=1,11,21 columns=prediction,ate_error -->
    <!-- table: by-sites fedci-data1 replicates=1-10 columns=rounds,megabytes -->
    <!-- table: across causalrff-delta-0,causalrff-delta-2 replicates=1-10 cells=causal_rff/federated -->
    <!-- end of table -->
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from unpooled.benchmark.contenders import ARRANGEMENTS, CONTENDERS
from unpooled.benchmark.summary import Entry, Number, Summary, numbers
from unpooled.benchmark.tables import TABLES, find
from unpooled.errors import StudyError, nearest

MARKER = re.compile(r"^<!-- table: ([^\n]*) -->\n(.*?)^<!-- end of table -->$", re.MULTILINE | re.DOTALL)
OPENING = re.compile(r"^<!-- table:", re.MULTILINE)
HEADS = {
    "imputation": "imputation",
    "prediction": "prediction",
    "conditional": "error of τ(x, u_seen)",
    "ate_error": "ATE error",
    "in_sample_ate_error": "ATE error, own people",
    "ate_sd": "sd of the ATE",
    "cate_95_coverage": "CATE 95 % covers",
    "conditional_95_coverage": "95 % of τ covers",
    "ate_95_coverage": "ATE 95 % covers",
    "rounds": "rounds",
    "megabytes": "MB out of a site",
    "quoted": "paper",
}
"""The heads of the columns; `quoted` is the published error."""
SPREAD = ("imputation", "prediction", "conditional", "ate_error", "in_sample_ate_error")
"""Measures that are shown with standard error and median; of the others, the mean is shown."""
DECIMALS = {"rounds": 0, "megabytes": 1}
OPTIONS = ("sites", "replicates", "columns", "contenders", "arrangements", "cells")


@dataclass(frozen=True)
class Marker:
    """What a table shows: entries of these tables with these numbers of sites, over these replicates."""

    layout: str
    tables: tuple[str, ...]
    replicates: tuple[int, ...]
    columns: tuple[str, ...]
    sites: tuple[int, ...] = ()
    contenders: tuple[str, ...] = ()
    arrangements: tuple[str, ...] = ()
    cells: tuple[tuple[str, str], ...] = ()

    def shown(self, entry: Entry) -> bool:
        """Whether an entry has what is asked for, apart from replicates and arrangement."""
        return (
            entry.table in self.tables
            and (not self.sites or entry.sites in self.sites)
            and (not self.contenders or entry.contender in self.contenders)
        )

    def arranged(self, arrangement: str) -> bool:
        """Whether entries with this arrangement are asked for."""
        return not self.arrangements or arrangement in self.arrangements


def rewritten(page: str, summary: Summary) -> str:
    """The page with each table as the summary has it."""
    markers = MARKER.findall(page)
    if len(markers) != len(OPENING.findall(page)):
        raise StudyError(
            "each marker of a table needs its end",
            found=f"{len(OPENING.findall(page))} markers, of which {len(markers)} have an end",
            remedy="put <!-- end of table --> on a line of its own after each table",
        )

    def write(match: re.Match[str]) -> str:
        marker = parsed(match[1])
        return f"<!-- table: {match[1]} -->\n{LAYOUTS[marker.layout](marker, summary)}\n<!-- end of table -->"

    return MARKER.sub(write, page)


def parsed(text: str) -> Marker:
    """The marker of a text such as "cells fedci-data1 sites=5 replicates=1-10 columns=prediction"."""
    words = text.split()
    options = dict(word.split("=", 1) for word in words[2:] if "=" in word)
    if len(words) < 2 or len(options) != len(words) - 2 or "replicates" not in options:
        raise StudyError(
            "a marker needs a layout, tables, and options with a value, of which replicates is one",
            found=f"'{text}'",
            remedy="such as: cells fedci-data1 sites=5 replicates=1-10 columns=prediction,ate_error",
        )
    columns = tuple(options.get("columns", "prediction").split(","))
    for kind, names, known in (
        ("layout", words[:1], LAYOUTS),
        ("option", options, OPTIONS),
        ("column", columns, HEADS),
    ):
        for name in names:
            if name not in known:
                raise StudyError(
                    f"the {kind} of a marker must exist", found=f"'{name}'", remedy=nearest(name, known)
                )
    listed = {name: tuple(value.split(",")) for name, value in options.items()}
    return Marker(
        words[0],
        tuple(find(name).name for name in words[1].split(",")),
        numbers(options["replicates"].replace(",", " ")),
        columns,
        sites=tuple(int(number) for number in listed.get("sites", ())),
        contenders=listed.get("contenders", ()),
        arrangements=listed.get("arrangements", ()),
        cells=tuple(_pair(cell) for cell in listed.get("cells", ())),
    )


def _pair(cell: str) -> tuple[str, str]:
    contender, _, arrangement = cell.partition("/")
    return contender, arrangement


def cells(marker: Marker, summary: Summary) -> str:
    """One row per contender, arrangement and number of sites, the fewest sites and best prediction first."""
    found = [
        one
        for one in summary.entries
        if marker.shown(one) and marker.arranged(one.arrangement) and one.replicates == marker.replicates
    ]
    first = "prediction" if "prediction" in marker.columns else marker.columns[0]
    # Contenders that do not have the measure come last.
    found.sort(key=lambda one: (one.sites, np.nan_to_num(_mean(one, first), nan=np.inf)))
    counts = len({one.sites for one in found}) > 1
    heads = ["contender", "tables", *(["sites"] if counts else []), "n"]
    rows = [
        [one.contender, one.arrangement, *([one.sites] if counts else []), len(one.replicates)]
        + [_cell(one, name, summary) for name in marker.columns]
        for one in found
    ]
    return _table([*heads, *(HEADS[name] for name in marker.columns)], rows, marker)


def grid(marker: Marker, summary: Summary) -> str:
    """One row per contender and arrangement, one column per measure and number of sites.

    Where fewer replicates are finished than asked for, their number is given. With a single site all
    arrangements are the same; peers have it in the row of the stacked tables.
    """
    sites = marker.sites or TABLES[marker.tables[0]].sites
    best = _most_finished(marker, summary)
    named = list(CONTENDERS)
    order = sorted(
        {(name, where) for name, where, count in best if count > 1 and marker.arranged(where)},
        key=lambda key: (ARRANGEMENTS.index(key[1]), named.index(key[0])),
    )
    rows = []
    for name, arrangement in order:
        row: list[object] = [name, arrangement]
        for measure in marker.columns:
            for count in sites:
                entry = best.get((name, arrangement, count))
                if count == 1 and arrangement != "federated":
                    entry = best.get((name, "local", 1), entry) if arrangement == "combined" else None
                row.append(_short(entry, measure, marker))
        rows.append(row)
    heads = [f"{HEADS[name]}, {count}" for name in marker.columns for count in sites]
    return _table(["contender", "tables", *heads], rows, marker)


def _most_finished(marker: Marker, summary: Summary) -> dict[tuple[str, str, int], Entry]:
    """By contender, arrangement and sites, the entry with the most of the replicates asked for."""
    best: dict[tuple[str, str, int], Entry] = {}
    for one in summary.entries:
        if marker.shown(one) and set(one.replicates) <= set(marker.replicates):
            key = (one.contender, one.arrangement, one.sites)
            if key not in best or len(one.replicates) > len(best[key].replicates):
                best[key] = one
    return best


def by_sites(marker: Marker, summary: Summary) -> str:
    """The table's own method by number of sites, on the tables apart and stacked, and the best stacked peer.

    The peer is compared on its own replicates, with the same method on the same ones.
    """
    (table,) = marker.tables
    mine = TABLES[table].method
    heads = ["sites", "imputation", "paper", "prediction", "prediction, tables stacked"]
    heads += ["federated / stacked", "best stacked peer, prediction", f"{mine}, same replicates"]
    heads += [HEADS[name] for name in marker.columns]
    known = {one.key[1:]: one for one in summary.entries if one.table == table}
    rows = []
    for count in marker.sites or TABLES[table].sites:
        apart = known.get((mine, "federated", count, marker.replicates))
        if apart is None:
            continue
        stacked = known.get((mine, "combined", count, marker.replicates))
        ratio = _mean(apart, "prediction") / _mean(stacked, "prediction") if stacked else 1.0
        row = [count, _cell(apart, "imputation", summary), _cell(apart, "quoted", summary)]
        row += [_cell(apart, "prediction", summary)]
        row += [f"{_mean(stacked, 'prediction'):.2f}", f"{ratio:.2f}"] if stacked else ["the same", ""]
        rows.append(
            row + _best_peer(known, mine, count) + [_cell(apart, name, summary) for name in marker.columns]
        )
    return _table(heads, rows, marker)


def _best_peer(known: dict[tuple, Entry], mine: str, count: int) -> list[object]:
    arrangement = "local" if count == 1 else "combined"
    peers = [
        one
        for (name, where, sites, replicates), one in known.items()
        if (where, sites) in ((arrangement, count), ("combined", count))
        and not name.startswith(mine)
        and (mine, "federated", sites, replicates) in known
    ]
    if not peers:
        return ["", ""]

    def ours(peer: Entry) -> float:
        return _mean(known[mine, "federated", count, peer.replicates], "prediction")

    # Peers may have finished different replicates, so the best is that with the smallest ratio to ours.
    best = min(peers, key=lambda one: _mean(one, "prediction") / ours(one))
    shown = f"{best.contender} {_mean(best, 'prediction'):.2f} (n = {len(best.replicates)})"
    return [shown, f"{ours(best):.2f}"]


def across(marker: Marker, summary: Summary) -> str:
    """One row per table, one column per measure and contender."""
    known = {(one.table, one.contender, one.arrangement): one for one in summary.entries
             if marker.shown(one) and one.replicates == marker.replicates}  # fmt: skip
    rows = [
        [table, *(_short(known.get((table, *cell)), name, marker) for name in marker.columns
                  for cell in marker.cells)]
        for table in marker.tables
    ]  # fmt: skip
    heads = [f"{name}, {how}: {HEADS[column]}" for column in marker.columns for name, how in marker.cells]
    filled = [0, *(place for place in range(1, len(heads) + 1) if any(row[place] for row in rows))]
    kept = [[line[place] for place in filled] for line in (["table", *heads], *rows)]
    return _table(kept[0], kept[1:], marker)


LAYOUTS: dict[str, Callable[[Marker, Summary], str]] = {
    "cells": cells,
    "grid": grid,
    "by-sites": by_sites,
    "across": across,
}


def _mean(entry: Entry, name: str) -> float:
    return entry.measures.get(name, (np.nan, np.nan, np.nan))[0]


def _cell(entry: Entry, name: str, summary: Summary) -> str:
    if name == "quoted":
        here = (entry.table, entry.contender, entry.arrangement, entry.sites)
        found = [q.value for q in summary.quoted if (q.table, q.contender, q.arrangement, q.sites) == here]
        return found[0] if found else ""
    value = entry.measures.get(name)
    if value is None:
        return ""
    if name not in SPREAD:
        return f"{value[0]:.{DECIMALS.get(name, 2)}f}"
    return _with_error(value) + (f" ({value[2]:.2f})" if np.isfinite(value[2]) else "")


def _short(entry: Entry | None, name: str, marker: Marker) -> str:
    """Mean and standard error, and the number of replicates if some are missing."""
    if entry is None or name not in entry.measures:
        return ""
    value = entry.measures[name]
    shown = _with_error(value) if name in SPREAD else f"{value[0]:.{DECIMALS.get(name, 2)}f}"
    fewer = len(entry.replicates) < len(marker.replicates)
    return f"{shown} (n = {len(entry.replicates)})" if fewer else shown


def _with_error(value: Number) -> str:
    return f"{value[0]:.2f}" + (f" ± {value[1]:.2f}" if np.isfinite(value[1]) else "")


def _table(heads: list[str], rows: Sequence[Sequence[object]], marker: Marker) -> str:
    if not rows:
        raise StudyError(
            "a table of the page needs entries of the summary",
            found=f"none of {', '.join(marker.tables)} with the replicates and sites of its marker",
            remedy="change the marker, or run the cells and give their --store",
        )
    head, *lines = ("| " + " | ".join(str(cell) for cell in line) + " |" for line in (heads, *rows))
    return "\n".join([head, "|" + "---|" * len(heads), *lines])
