"""Where values are missing across sites, and whether by chance alone."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from unpooled.cli.app import app
from unpooled.data.stored_columns import sentinel
from unpooled.diagnostics.missingness import missingness
from unpooled.disclosure.limits import Limits
from unpooled.maths.little import little
from unpooled.maths.missing_patterns import patterns_of
from unpooled.study import Study

STUDY = Study(treatment="w", outcome="y", covariates=["a"], incomplete=["b", "c"])


def tables(*, by_outcome: bool) -> dict[str, pd.DataFrame]:
    rng, made = np.random.default_rng(4), {}
    for number, site in enumerate(("north", "south", "west")):
        a, b, c, y = rng.standard_normal((4, 60)) + 0.5
        w = rng.integers(0, 2, 60)
        frame = pd.DataFrame({"a": a + 1e6, "b": b, "c": c + 0.6 * y, "w": w, "y": y})
        chance = 1.0 / (1.0 + np.exp(-3.0 * (y - 1.0))) if by_outcome else np.full(60, 0.3 + 0.1 * number)
        frame.loc[rng.random(60) < chance, "b"] = np.nan
        frame.loc[rng.random(60) < 0.2, "c"] = np.nan
        made[site] = frame
    return made


def test_the_sites_test_is_that_of_the_stacked_table() -> None:
    made = tables(by_outcome=True)
    found = missingness(STUDY, made)
    stacked = pd.concat(made.values())[["a", "b", "c", "w", "y"]].to_numpy(float)
    expected = little(patterns_of(stacked, np.nanmean(stacked, axis=0)))
    assert found.pooled is not None
    assert found.pooled.statistic == pytest.approx(expected.statistic, rel=1e-9)
    assert found.pooled.degrees == expected.degrees
    assert found.pooled.p_value < 1e-6


def test_chance_alone_is_not_rejected() -> None:
    found = missingness(STUDY, tables(by_outcome=False))
    assert found.stratified.p_value > 0.01
    assert found.pooled is not None
    assert found.pooled.p_value > 0.01


def test_shares_and_patterns_are_counted() -> None:
    made = tables(by_outcome=False)
    found = missingness(STUDY, made)
    assert list(found.shares.columns) == ["b", "c"]
    assert found.shares.loc["north", "b"] == pytest.approx(made["north"]["b"].isna().mean())
    stacked = pd.concat(made.values())
    assert found.shares.loc["all sites", "c"] == pytest.approx(stacked["c"].isna().mean())
    assert found.patterns["rows"].sum() == 180
    complete = int(stacked.notna().all(axis=1).sum())
    assert found.patterns.loc[found.patterns["missing"] == "nothing", "rows"].item() == complete
    assert not found.withheld


def test_rare_patterns_are_withheld_and_that_is_told() -> None:
    made = tables(by_outcome=False)
    both = {site: int(frame[["b", "c"]].isna().all(axis=1).sum()) for site, frame in made.items()}
    found = missingness(STUDY, made, limits=Limits(rows=0, cell=8, share=1.0))
    few = {site for site, count in both.items() if 0 < count < 8}
    assert few
    assert few <= set(found.withheld)
    assert found.patterns["rows"].sum() == 180 - sum(held["rows"] for held in found.withheld.values())


def test_a_code_at_the_end_of_a_column_is_pointed_out() -> None:
    values = pd.Series([*np.linspace(18.0, 40.0, 30), -9, -9, -9, -9])
    assert sentinel(values) == (-9.0, 4)
    assert sentinel(values.replace(-9, np.nan)) is None
    assert sentinel(pd.Series([9.0, 9.0, 9.0, 8.0, 7.0, 6.5])) is None  # nine among its like
    assert sentinel(pd.Series(["a", "b", "a"])) is None


@pytest.fixture
def study_file(tmp_path):
    made = tables(by_outcome=True)
    made["north"].loc[:4, "a"] = -999
    lines = ['[columns]\ntreatment = "w"\noutcome = "y"\ncovariates = ["a"]\nincomplete = ["b", "c"]\n']
    lines.append('[method]\nname = "causal_fi"\n')
    for site, frame in made.items():
        frame.to_csv(tmp_path / f"{site}.csv", index=False)
        lines.append(f'[sites.{site}]\npath = "{site}.csv"\n')
    path = tmp_path / "study.toml"
    path.write_text("\n".join(lines))
    return path


def test_check_tells_of_it(study_file) -> None:
    shown = CliRunner().invoke(app, ["check", str(study_file)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert "Little's test: d²" in shown.output
    assert "p < 0.0001" in shown.output
    assert "numeric, incomplete  b, c" in shown.output
    assert "cannot be tested" in " ".join(shown.output.split())
    assert "'a' at site 'north': 5 values are -999" in shown.output
    told = json.loads(CliRunner().invoke(app, ["check", str(study_file), "--json"]).output)
    assert told["missingness"]["little"]["p_value"] < 1e-4
    assert set(told["missingness"]["shares"]) == {"north", "south", "west", "all sites"}
