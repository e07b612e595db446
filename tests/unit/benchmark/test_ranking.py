"""Ranks, ratios to the best, and means in units of the outcome, over data sets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from unpooled.benchmark import ranking
from unpooled.benchmark.contenders import CONTENDERS
from unpooled.benchmark.runner import CellStore
from unpooled.cli.app import app

ERRORS = {"ridge": (1.0, 2.0, 4.0), "bart": (2.0, 2.1, 1.0), "zero": (4.0, 8.0, 2.0)}
UNITS = (1.0, 2.0, 4.0)


def _cells() -> pd.DataFrame:
    rows = [
        {
            "contender": name, "arrangement": "combined", "sites": 3, "replicate": i + 1, "error": None,
            "prediction": error, "outcome_sd": UNITS[i], "cpu_seconds": 2.0,
            **({"cate_95_coverage": 0.9, "cate_95_width": 2.0 * UNITS[i]} if name == "bart" else {}),
        }
        for name, errors in ERRORS.items() for i, error in enumerate(errors)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_ranks_ratios_and_shares_are_over_data_sets() -> None:
    found = ranking.ranked(_cells()).droplevel("arrangement")
    assert found.index.tolist() == ["bart", "ridge", "zero"]
    assert found["mean rank"].tolist() == pytest.approx([5 / 3, 5 / 3, 8 / 3])
    assert found["near the best"].tolist() == pytest.approx([2 / 3, 2 / 3, 0.0])
    assert found.loc["bart", "ratio to the best"] == pytest.approx((2.0 * 1.05 * 1.0) ** (1 / 3))
    assert found.loc["zero", "median ratio"] == 4.0
    assert found.loc["ridge", "error"] == pytest.approx((1.0 + 1.0 + 1.0) / 3)
    assert found.loc["bart", "CATE width"] == pytest.approx(2.0)
    assert np.isnan(found.loc["ridge", "CATE covers"])


def test_a_combination_is_not_the_best_and_may_be_better_than_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONTENDERS, "ridge", replace(CONTENDERS["ridge"], combines=True))
    found = ranking.relative(ranking.errors(_cells()))
    assert found["ridge", "combined"].tolist() == pytest.approx([0.5, 2.0 / 2.1, 4.0])
    assert found["bart", "combined"].tolist() == [1.0, 1.0, 1.0]


def test_data_sets_that_somebody_has_not_finished_do_not_count() -> None:
    cells = _cells()
    cells.loc[cells["replicate"].eq(3) & cells["contender"].eq("zero"), "error"] = "ValueError: no"
    assert ranking.ranked(cells)["data sets"].tolist() == [2, 2, 2]
    lines = ranking.error_table(cells, ["first", "second", "third"]).splitlines()
    assert lines[0] == "| data set | ridge | bart | zero |"
    assert lines[-1] == "| third | 4.00 | 1.00 |  |"


def test_the_view_shows_both_tables_with_the_names_of_data_sets(tmp_path: Path) -> None:
    store = CellStore(tmp_path, "real")
    for row in _cells().to_dict("records"):
        store.add({**row, "error": None})
    asked = ["benchmark", "compare", "real", "--view", "data-sets", "--store", str(tmp_path)]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    assert "| acic-2-propensity |" in result.output
    assert "| ratio to the best |" in result.output
    assert "| bart | combined | 3 | 1.67 |" in result.output
    fewer = CliRunner().invoke(app, [*asked, "--methods", "bart", "--methods", "zero"])
    assert "| bart | combined | 3 | 1.00 |" in fewer.output
    assert "ridge" not in fewer.output
