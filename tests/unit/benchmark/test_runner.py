"""Cells: run once, kept, resumed, and shown with whoever failed or is absent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from unpooled.benchmark import runner
from unpooled.benchmark.comparison import in_common, markdown, summarise, verdict, with_paper
from unpooled.benchmark.contenders import CONTENDERS, Contender, find
from unpooled.benchmark.runner import CellStore
from unpooled.benchmark.tables import TABLES, BenchmarkTable
from unpooled.cli.app import app
from unpooled.errors import StudyError

TABLE = TABLES["fedci-data1"]
NAMES = ("zero", "constant", "ridge")


def _cells(**changes: Any) -> list[runner.Cell]:
    return runner.cells(**{"contenders": NAMES, "sites": (2,), "replicates": 2, **changes})


def test_a_finished_cell_is_never_run_again_and_survives_the_process(tmp_path: Path) -> None:
    first = list(runner.run(TABLE, _cells()[:3], CellStore(tmp_path, TABLE.name), None))
    assert len(first) == 3
    again = list(runner.run(TABLE, _cells(), CellStore(tmp_path, TABLE.name), None))
    assert len(again) == len(_cells()) - 3
    stored = CellStore(tmp_path, TABLE.name).cells
    assert len(stored) == len(_cells())
    assert not stored.duplicated(["contender", "arrangement", "sites", "replicate"]).any()
    assert stored["version_unpooled"].notna().all()
    assert stored["fit_seconds"].gt(0).all()


def test_with_one_site_there_is_one_arrangement() -> None:
    assert {cell.arrangement for cell in _cells(sites=(1,), contenders=("ridge",))} == {"local"}
    assert len(_cells(contenders=("ridge",), replicates=1)) == 3
    assert len(_cells(contenders=("ridge",), replicates=1, arrangements=("combined",))) == 1


def test_a_contender_that_fails_is_a_row_that_says_so_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Contender) -> Any:
        def estimate(*_: Any) -> Any:
            raise ValueError("too few treated")

        return estimate

    store, todo = CellStore(tmp_path, TABLE.name), _cells(contenders=("zero",), replicates=1)
    with monkeypatch.context() as patch:
        patch.setattr(Contender, "estimator", broken)
        (row,) = runner.run(TABLE, todo, store, None)
    assert row["error"] == "ValueError: too few treated"
    assert not store.has(**todo[0].key)
    (row,) = runner.run(TABLE, todo, store, None)
    assert row.get("error") is None
    assert len(store.cells) == 1


def test_an_absent_package_is_named_and_leaves_no_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = replace(CONTENDERS["zero"], package="no_such_package")
    monkeypatch.setitem(CONTENDERS, "zero", gone)
    assert "no_such_package" in str(gone.missing())
    assert _cells(contenders=("zero",)) == []


def test_a_misspelt_contender_or_table_names_the_nearest() -> None:
    with pytest.raises(StudyError, match="ridge"):
        find("rigde")


def test_means_errors_and_medians_are_over_replicates() -> None:
    cells = pd.DataFrame(
        {
            "contender": "zero", "arrangement": "combined", "sites": 5, "error": None,
            "replicate": [1, 2, 3], "prediction": [1.0, 2.0, 6.0], "imputation": [1.0, 1.0, 1.0],
        }
    )  # fmt: skip
    (row,) = summarise(cells, ("imputation", "prediction")).to_dict("records")
    assert (row["prediction"], row["prediction_median"], row["replicates"]) == (3.0, 2.0, 3)
    assert row["prediction_se"] == pytest.approx(np.std([1, 2, 6], ddof=1) / np.sqrt(3))


def test_means_are_compared_over_the_replicates_that_all_have_finished() -> None:
    cells = pd.DataFrame(
        {
            "contender": ["a", "a", "a", "b", "b", "b"], "arrangement": "combined",
            "sites": [5, 5, 1, 5, 5, 5], "replicate": [1, 2, 1, 1, 2, 3],
            "error": [None, None, None, None, "broken", None], "prediction": 1.0,
        }
    )  # fmt: skip
    kept = in_common(cells)
    found = sorted(zip(kept["contender"], kept["sites"], kept["replicate"], strict=True))
    assert found == [("a", 1, 1), ("a", 5, 1), ("b", 5, 1)]


def test_the_papers_number_stands_beside_ours_with_its_task(tmp_path: Path) -> None:
    paper = tmp_path / "tables.csv"
    paper.write_text("table,method,sources,metric,mean,se\nfedci-data1,FedCI,5,sqrt_pehe,9.87,0.05\n")
    cells = pd.DataFrame(
        {
            "contender": ["fedci", "ridge"], "arrangement": ["federated", "local"], "sites": 5,
            "error": None, "replicate": 1, "prediction": 1.0, "imputation": 2.0,
        }
    )  # fmt: skip
    shown = with_paper(summarise(cells, ("imputation", "prediction")), paper, "fedci-data1")
    text = markdown(shown, ("imputation", "prediction"))
    assert "9.87 ± 0.05 (imputation)" in text
    assert text.count("9.87") == 1
    peers = shown.assign(contender="gp", arrangement="combined", prediction=0.5)
    said = verdict(pd.concat([shown, peers]), "fedci")
    assert "paper's fedci (imputation) in 1 of 1" in said
    assert "peer (imputation) in 0 of 1" in said  # a tie is no win
    assert "peer (prediction) in 0 of 1" in said


def test_the_command_runs_then_compares(tmp_path: Path) -> None:
    runner, store = CliRunner(), str(tmp_path / "cells")
    empty = runner.invoke(app, ["benchmark", "compare", "fedci-data1", "--store", store])
    assert empty.exit_code >= 2
    chosen = ["--methods", "zero", "--methods", "ridge", "--sites", "2", "--replicates", "1"]
    ran = runner.invoke(app, ["benchmark", "run", "fedci-data1", "--store", store, "--quiet", *chosen])
    assert ran.exit_code == 0, ran.output
    assert "| ridge | local | 2 | 1 |" in ran.output
    shown = runner.invoke(app, ["benchmark", "compare", "fedci-data1", "--store", store])
    assert shown.output == ran.output
    listed = runner.invoke(app, ["benchmark", "list"])
    assert all(name in listed.output for name in (*TABLES, *CONTENDERS))
    for bad in (["run", "fedci-data7"], ["run", "fedci-data1", "--arrangements", "pooled"],
                ["compare", "fedci-data1", "--view", "eror"]):  # fmt: skip
        wrong = runner.invoke(app, ["benchmark", *bad, "--store", store])
        assert wrong.exit_code >= 2, wrong.output
    for view in ("intervals", "cost"):
        seen = runner.invoke(app, ["benchmark", "compare", "fedci-data1", "--view", view, "--store", store])
        assert seen.exit_code == 0, seen.output
    assert "fit_seconds" in seen.output
    drawn = runner.invoke(
        app, ["benchmark", "figures", "fedci-data1", "--store", store, "--output", str(tmp_path / "drawn")]
    )
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "drawn" / "fedci-data1-ranking.png").stat().st_size > 10_000
    assert isinstance(TABLES["fedci-data1"], BenchmarkTable)
