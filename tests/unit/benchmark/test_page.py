"""Tables of a page: made from a summary of cells, each over the same replicates, and nothing else moved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from unpooled.benchmark.page import parsed, rewritten
from unpooled.benchmark.runner import CellStore
from unpooled.benchmark.summary import Entry, Quoted, Summary, of_cells, read, write
from unpooled.cli.app import app
from unpooled.errors import UnpooledError

NAN = float("nan")


def _entry(contender: str, arrangement: str, sites: int, prediction: float, **changes: Any) -> Entry:
    made = Entry(
        "fedci-data1",
        contender,
        arrangement,
        sites,
        (1, 2, 3),
        {"prediction": (prediction, 0.04, prediction)},
    )
    return replace(made, **changes)


SUMMARY = Summary(
    (
        _entry("ridge", "combined", 5, 2.25),
        _entry("fedci", "federated", 5, 0.75),
        _entry("fedci", "combined", 5, 0.5),
        _entry("fedci", "federated", 5, 9.0, replicates=(1, 2)),
        _entry("bart", "combined", 5, 2.5, replicates=(1, 2)),
        _entry("ridge", "local", 1, 4.0),
        _entry("ridge", "local", 5, 3.0),
        _entry("fedci", "federated", 1, 3.0),
    ),
    (Quoted("fedci-data1", "fedci", "federated", 5, "1.99 ± 0.05 (imputation)"),),
)


def _page(marker: str, table: str = "") -> str:
    return f"Before.\n\n<!-- table: {marker} -->\n{table}<!-- end of table -->\n\n| not | ours |\n"


def _made(marker: str, summary: Summary = SUMMARY) -> list[list[str]]:
    text = rewritten(_page(marker), summary)
    assert text.startswith("Before.\n\n<!-- table: ") and text.endswith("-->\n\n| not | ours |\n")
    assert rewritten(text, summary) == text, "writing twice changes nothing"
    lines = [line for line in text.splitlines() if line.startswith("|")][:-1]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in (lines[0], *lines[2:])]


def test_cells_are_those_of_the_replicates_best_first() -> None:
    made = _made("cells fedci-data1 sites=5 replicates=1-3 columns=prediction,quoted")
    assert made == [
        ["contender", "tables", "n", "prediction", "paper"],
        ["fedci", "combined", "3", "0.50 ± 0.04 (0.50)", ""],
        ["fedci", "federated", "3", "0.75 ± 0.04 (0.75)", "1.99 ± 0.05 (imputation)"],
        ["ridge", "combined", "3", "2.25 ± 0.04 (2.25)", ""],
        ["ridge", "local", "3", "3.00 ± 0.04 (3.00)", ""],
    ]
    made = _made("cells fedci-data1 replicates=1-3 columns=prediction contenders=ridge arrangements=local")
    assert [row[2] for row in made] == ["sites", "1", "5"]


def test_a_grid_says_where_replicates_are_missing_and_shows_one_site_once() -> None:
    made = _made("grid fedci-data1 sites=1,5 replicates=1-3 columns=prediction")
    assert made[0] == ["contender", "tables", "prediction, 1", "prediction, 5"]
    rows = {(row[0], row[1]): row[2:] for row in made[1:]}
    assert rows["fedci", "federated"] == ["3.00 ± 0.04", "0.75 ± 0.04"]
    assert rows["ridge", "combined"] == ["4.00 ± 0.04", "2.25 ± 0.04"]
    assert rows["ridge", "local"] == ["", "3.00 ± 0.04"]
    assert rows["bart", "combined"] == ["", "2.50 ± 0.04 (n = 2)"]
    stacked = _made("grid fedci-data1 sites=1,5 replicates=1-3 arrangements=combined")
    assert ["ridge", "combined", "4.00 ± 0.04", "2.25 ± 0.04"] in stacked
    assert {row[1] for row in stacked[1:]} == {"combined"}


def test_the_best_peer_is_compared_on_its_own_replicates() -> None:
    both = Summary((*SUMMARY.entries, _entry("bart", "combined", 5, 2.5, replicates=(1, 2))), ())
    (heads, row) = _made("by-sites fedci-data1 sites=5 replicates=1-3 columns=rounds", both)
    cells = dict(zip(heads, row, strict=True))
    assert cells["federated / stacked"] == "1.50"
    assert cells["best stacked peer, prediction"] == "bart 2.50 (n = 2)", (
        "2.50 / 9.00 is less than 2.25 / 0.75"
    )
    assert cells["fedci, same replicates"] == "9.00"


def test_across_tables_there_is_a_row_for_each() -> None:
    marker = "across fedci-data1,fedci-data2 sites=5 replicates=1-3 columns=prediction cells=fedci/federated"
    assert _made(marker) == [
        ["table", "fedci, federated: prediction"],
        ["fedci-data1", "0.75 ± 0.04"],
        ["fedci-data2", ""],
    ]


@pytest.mark.parametrize(
    "marker",
    [
        "cells",
        "cells fedci-data1",
        "cels fedci-data1 replicates=1",
        "cells fedci-data7 replicates=1",
        "cells fedci-data1 replicate=1 replicates=1",
        "cells fedci-data1 replicates=1 columns=predicton",
        "cells fedci-data1 replicates=4",
    ],
)
def test_a_marker_that_is_wrong_or_finds_nothing_is_refused(marker: str) -> None:
    with pytest.raises(UnpooledError):
        rewritten(_page(marker), SUMMARY)


def test_a_marker_without_an_end_is_refused() -> None:
    with pytest.raises(UnpooledError, match="needs its end"):
        rewritten("<!-- table: cells fedci-data1 replicates=1-3 -->\n| a |\n", SUMMARY)


def test_replicates_are_numbers_and_ranges() -> None:
    assert parsed("grid causalrff-same replicates=1,11,21-22").replicates == (1, 11, 21, 22)


def _cells() -> pd.DataFrame:
    rows = [("fedci", "federated", r, float(r), None) for r in (1, 2, 3)]
    rows += [("bart", "combined", r, 10.0 * r, None) for r in (1, 3)]
    rows += [("bart", "combined", 2, NAN, "ValueError: too few")]
    columns = ["contender", "arrangement", "replicate", "prediction", "error"]
    return pd.DataFrame(rows, columns=pd.Index(columns)).assign(sites=5, fit_seconds=1.0)


def test_entries_of_cells_leave_failures_out_and_let_the_method_be_compared() -> None:
    found = {(one.contender, one.replicates): one.measures for one in of_cells("fedci-data1", _cells())}
    assert set(found) == {("fedci", (1, 2, 3)), ("fedci", (1, 3)), ("bart", (1, 3))}
    assert found["fedci", (1, 3)]["prediction"][0] == found["bart", (1, 3)]["prediction"][0] / 10.0 == 2.0
    assert found["bart", (1, 3)]["prediction"] == pytest.approx((20.0, 10.0, 20.0))
    assert set(found["bart", (1, 3)]) == {"prediction"}  # no seconds


def test_a_summary_survives_its_file_and_new_entries_replace_those_of_the_same_replicates(
    tmp_path: Path,
) -> None:
    file = tmp_path / "summary.json"
    new = _entry("ridge", "combined", 5, 1.0 / 3.0)
    missing = _entry("gp", "combined", 5, 1.0, measures={"prediction": (1.5, NAN, NAN)})
    write(SUMMARY.updated([new, missing]), file)
    again = read(file)
    known = {one.key: one for one in again.entries}
    assert len(known) == len(again.entries) == len(SUMMARY.entries) + 1
    assert known[new.key].measures["prediction"][0] == 0.33333
    assert np.isnan(known[missing.key].measures["prediction"][1])
    assert again.quoted == SUMMARY.quoted
    text = file.read_text(encoding="utf-8")
    write(again, file)
    assert file.read_text(encoding="utf-8") == text
    assert len(text.splitlines()) == len(again.entries) + len(again.quoted) + 6, "a line for each"


def test_the_command_adds_cells_of_a_store_and_checks_without_writing(tmp_path: Path) -> None:
    page, summary, store = tmp_path / "page.md", tmp_path / "page.json", tmp_path / "store"
    page.write_text(_page("cells fedci-data1 sites=5 replicates=1,3 columns=prediction"), encoding="utf-8")
    runner = CliRunner()
    assert runner.invoke(app, ["benchmark", "page", str(page)]).exit_code >= 2  # no summary
    write(SUMMARY, summary)
    cells = CellStore(store, "fedci-data1")
    for row in _cells().to_dict("records"):
        cells.add({str(name): value for name, value in row.items()})
    wrong = runner.invoke(app, ["benchmark", "page", str(page), "--store", str(store), "--check"])
    assert wrong.exit_code >= 2 and "bart" not in page.read_text(encoding="utf-8")
    done = runner.invoke(app, ["benchmark", "page", str(page), "--store", str(store)])
    assert done.exit_code == 0, done.output
    assert "| bart | combined | 2 | 20.00 ± 10.00 (20.00) |" in page.read_text(encoding="utf-8")
    right = runner.invoke(app, ["benchmark", "page", str(page), "--check"])
    assert right.exit_code == 0, right.output
    page.write_text(page.read_text(encoding="utf-8").replace("20.00 ±", "19.00 ±"), encoding="utf-8")
    assert runner.invoke(app, ["benchmark", "page", str(page), "--check"]).exit_code >= 2
