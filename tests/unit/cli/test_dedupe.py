"""`unpooled dedupe`, and what `unpooled check` says of people at several sites."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from unpooled.cli.app import app
from unpooled.diagnostics.duplicates import too_narrow

runner = CliRunner()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=200), rng.permutation(np.arange(200) % 2)
    everybody = pd.DataFrame({"number": np.arange(200), "x": x, "w": w, "y": x + w + rng.normal(size=200)})
    everybody[:120].to_csv(tmp_path / "north.csv", index=False)
    everybody[80:].to_csv(tmp_path / "south.csv", index=False)
    return tmp_path


def study(folder: Path, more: str = "", identity: str = 'id = "number"') -> Path:
    path = folder / "study.toml"
    path.write_text(
        f"""
[study]
diagnostics = false
[columns]
treatment = "w"
outcome = "y"
covariates = ["x"]
{identity}
{more}
[method]
name = "aipw"
[sites]
north = "north.csv"
south = "south.csv"
"""
    )
    return path


def run(*words: object) -> str:
    done = runner.invoke(app, [str(word) for word in words], env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_dedupe_prints_counts_and_no_keys(folder: Path) -> None:
    found = json.loads(run("dedupe", study(folder), "--json"))
    assert found["overlaps"] == [{"sites": ["north", "south"], "people": 40}]
    assert found["share"] == pytest.approx(40 / 240)
    assert sum(one["left_out"] for one in found["sites"].values()) == 40
    text = run("dedupe", study(folder))
    assert "at north, south: 40 people" in text and "40 rows (16.7%)" in text
    keyed = run("dedupe", study(folder, '[privacy]\nduplicates = "keyed hash"'))
    assert "can test every possible person" in " ".join(keyed.split())


def test_dedupe_needs_an_id(folder: Path) -> None:
    for path in (study(folder, identity=""), study(folder, '[privacy]\nduplicates = "ignore"')):
        done = runner.invoke(app, ["dedupe", str(path)])
        assert done.exit_code == 2 and "how people are identified" in done.stderr


def test_check_tells_the_share_and_what_ignoring_it_does(folder: Path) -> None:
    ignored = json.loads(run("check", study(folder, '[privacy]\nduplicates = "ignore"'), "--json"))
    assert ignored["duplicates"]["share"] == pytest.approx(40 / 240)
    assert ignored["duplicates"]["errors_too_small_by"] == pytest.approx(np.sqrt(320 / 240))
    assert ignored["sites"]["north"]["rows"] == 120
    left = json.loads(run("check", study(folder), "--json"))
    assert sum(site["rows"] for site in left["sites"].values()) == 200
    assert {"blind keys", "leave out"} <= {one["kind"] for one in left["leaving"]}
    text = run("check", study(folder, '[privacy]\nduplicates = "ignore"'))
    assert "too small by a factor of up to 1.15" in text
    assert "duplicates" not in json.loads(run("check", study(folder, identity=""), "--json"))


def test_errors_are_too_small_by_the_root_of_the_mean_number_of_copies() -> None:
    """Compared with simulated means of people who have one to three equal rows."""
    rng = np.random.default_rng(0)
    rows = np.repeat([1, 2, 3], [60, 30, 10])
    means = (rng.normal(size=(20_000, 100)) @ rows) / rows.sum()
    assert means.std() * np.sqrt(rows.sum()) == pytest.approx(too_narrow(rows), rel=0.02)


def test_a_run_leaves_them_out(folder: Path) -> None:
    run("run", study(folder), "--output", folder / "results", "--quiet")
    result = json.loads((folder / "results" / "result.json").read_text())
    assert "40 rows (16.7%)" in json.dumps(result)
