"""`unpooled policy` as it is used, from a study file and on the results of a real run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import unpooled as up
from unpooled.cli.app import app

STUDY = """
[study]
seed = 3
[columns]
treatment = "w"
outcome = "y"
covariates = ["x", "k"]
units = { y = "kg" }
[method]
name = "aipw"
draws = 100
[sites.north]
path = "north.csv"
[sites.south]
path = "south.csv"
"""
pytestmark = pytest.mark.slow


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A study file, its tables of two sites, and its results; treatment lowers y if x is large."""
    folder = tmp_path_factory.mktemp("policy")
    for seed, site in enumerate(("north", "south")):
        random = np.random.default_rng(seed)
        x, k = random.standard_normal(150), random.choice(["a", "b"], 150)
        w = random.binomial(1, 1 / (1 + np.exp(-x)))
        y = x - 2.0 * w * (x > 0) + random.standard_normal(150)
        pd.DataFrame({"x": x, "k": k, "w": w, "y": y}).to_csv(folder / f"{site}.csv", index=False)
    (folder / "study.toml").write_text(STUDY)
    told = run("run", folder / "study.toml", "--output", folder / "results", "--quiet")
    assert told.exit_code == 0, told.output
    return folder


@pytest.fixture(scope="module")
def expected(folder) -> up.policy:
    """What the function gives."""
    model = up.AIPW(seed=3, draws=100)
    study = up.read_study(folder / "study.toml")
    return up.policy(model, study, cost=0.3, larger_is_better=False)


def test_a_study_file_gives_a_table_a_rule_and_the_figure_of_fifths(folder, expected, tmp_path) -> None:
    options = ("--cost", "0.3", "--smaller-is-better")
    told = run("policy", folder / "study.toml", "--output", tmp_path / "whom", *options)
    assert told.exit_code == 0, told.output
    lines = told.stdout.splitlines()
    assert lines[0].startswith(f"Rule: {expected.rule}. Per person and after the cost")
    assert told.stderr.splitlines() == [f"whom to treat, fit {fit} of 3" for fit in (1, 2, 3)]
    for name in ("nobody", "everybody", "as observed", "predicted effect", "rule"):
        assert any(line.startswith(name) for line in lines)
    assert "0.3 kg for each person treated; smaller outcomes are better" in told.stdout
    assert {path.name for path in (tmp_path / "whom").iterdir()} == {
        "policy.json",
        "fifths.png",
        "fifths.csv",
    }
    assert (tmp_path / "whom/fifths.png").stat().st_size > 10_000
    content = json.loads((tmp_path / "whom/policy.json").read_text())
    rows = {row["policy"]: row for row in content["policies"]}
    gains, values = expected.gains("everybody"), expected.values()
    for name in gains.index:
        found = rows[name]["over_everybody"]
        assert list(found.values()) == pytest.approx(gains.loc[name, ["gain", "lower", "upper"]].tolist())
        assert rows[name]["treated"] == pytest.approx(values.loc[name, "treated"])
    assert rows["everybody"]["over_everybody"]["estimate"] is None
    fifths = pd.read_csv(tmp_path / "whom/fifths.csv")
    np.testing.assert_allclose(fifths["effect"], expected.sorted_effects()["effect"])
    again = run("policy", folder / "study.toml", "--output", tmp_path / "whom", *options)
    assert again.exit_code == 7, "results are never written over"


def test_results_are_added_to_and_their_report_shows_them(folder, expected, tmp_path) -> None:
    shutil.copytree(folder, tmp_path / "study")
    results = tmp_path / "study/results"
    assert 'id="policy"' not in (results / "report.html").read_text()
    options = ("--cost", "0.3", "--smaller-is-better")
    told = run("policy", "--results", results, *options, "--json")
    assert told.exit_code == 0, told.output
    assert told.stderr == ""
    content = json.loads(told.stdout)
    assert content.pop("folder") == str(results)
    assert content == json.loads((results / "policy.json").read_text())
    assert content["rule"] == expected.rule
    page, numbers = (results / "report.html").read_text(), json.loads((results / "report.json").read_text())
    assert numbers["policy"] == content
    assert 'id="policy"' in page and expected.rule.replace("<", "&lt;").replace(">", "&gt;") in page
    assert (results / "figures/fifths.png").exists() and (results / "figures/fifths.csv").exists()
    (results / "report.html").unlink()
    assert run("report", results).exit_code == 0
    assert (results / "report.html").read_text() == page, "the report is written again with it"
    again = run("policy", "--results", results, *options)
    assert again.exit_code == 7 and "policy.json" in again.stderr
    (results / "policy.json").unlink()
    table = results.parent / "north.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:-1]))
    changed = run("policy", "--results", results)
    assert changed.exit_code == 2 and "those that the model was fitted to" in changed.stderr


def test_quiet_is_one_line(folder, tmp_path) -> None:
    told = run("policy", folder / "study.toml", "--output", tmp_path / "whom", "--quiet")
    assert told.exit_code == 0, told.output
    assert len(told.stdout.splitlines()) == 1 and told.stderr == ""


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 2, "none of them"),
        (["STUDY"], 2, "found: STUDY"),
        (["STUDY", "--output", "OUT", "--results", "OUT"], 2, "STUDY, --output, --results"),
        (["STUDY", "--output", "OUT", "--trim", "0.7"], 2, "trim between 0 and 0.5"),
        (["STUDY", "--output", "OUT", "--cost", "nan"], 2, "cost must be a number"),
        (["--results", "OUT"], 7, "policy needs the folder of a finished study"),
    ],
)
def test_what_cannot_be_valued_is_refused_and_nothing_is_written(folder, tmp_path, words, code, told) -> None:
    places = {"STUDY": str(folder / "study.toml"), "OUT": str(tmp_path / "whom")}
    answer = run("policy", *(places.get(word, word) for word in words))
    assert answer.exit_code == code
    assert told in answer.stderr
    assert not (tmp_path / "whom").exists()
