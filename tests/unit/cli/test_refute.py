"""`unpooled refute` as it is used, after a real run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from unpooled.cli.app import app
from unpooled.cli.refute import sentence
from unpooled.estimators.robustness.refit import Refit
from unpooled.estimators.robustness.refute import Refutation
from unpooled.report.robustness import MAIN, drawn, forest

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
FILES = ("refutation.json", "refutation.csv", "figures/refutation.png", "figures/refutation.csv")


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """A finished study of two small sites; `before` was there before treatment."""
    folder = tmp_path_factory.mktemp("refuted")
    for seed, site in enumerate(("north", "south")):
        random = np.random.default_rng(seed)
        x, k = random.standard_normal(80), random.choice(["a", "b"], 80)
        w = random.binomial(1, 1 / (1 + np.exp(-x)))
        before = x + random.standard_normal(80)
        frame = pd.DataFrame({"x": x, "k": k, "w": w, "y": x + w + random.standard_normal(80)})
        frame.assign(before=before).to_csv(folder / f"{site}.csv", index=False)
    (folder / "study.toml").write_text(STUDY)
    told = run("run", folder / "study.toml", "--output", folder / "results", "--quiet")
    assert told.exit_code == 0, told.output
    return folder / "results"


@pytest.fixture
def fresh(results, tmp_path) -> Path:
    """A copy, tables and all."""
    shutil.copytree(results.parent, tmp_path / "study")
    return tmp_path / "study" / "results"


def test_a_study_is_put_to_the_test(fresh) -> None:
    told = run("refute", fresh, "--negative-control", "before", "--repeats", "1")
    assert told.exit_code == 0, told.output
    assert "worrying" in told.stdout.splitlines()[0]
    for test in ("placebo", "common_cause", "subsets", "negative_control", "e_value"):
        assert test in told.stdout
    assert "PASS" in told.stdout and "The result is worrying if" in told.stdout
    assert told.stderr.splitlines()[0] == "placebo, 1 of 1", "progress goes to stderr"
    assert all((fresh / name).exists() for name in FILES)
    assert (fresh / "figures/refutation.png").stat().st_size > 10_000
    written = json.loads((fresh / "refutation.json").read_text())
    assert [row["test"] for row in written["table"]] == pd.read_csv(fresh / "refutation.csv")["test"].tolist()
    assert written["main"]["estimate"] == json.loads((fresh / "result.json").read_text())["ate"]
    assert pd.read_csv(fresh / "figures/refutation.csv")["test"].tolist()[:2] == [MAIN, "placebo"]
    assert "permuted among similar people" in (fresh / "report.html").read_text(), "the report shows it too"
    again = run("refute", fresh)
    assert again.exit_code == 7
    assert "refutation.json" in again.stderr, "results are never written over"


def test_as_json_nothing_else_goes_to_stdout(fresh) -> None:
    told = run("refute", fresh, "--tests", "placebo,e_value", "--repeats", "2", "--json")
    assert told.exit_code == 0, told.output
    assert told.stderr == ""
    content = json.loads(told.stdout)
    assert [row["test"] for row in content["table"]] == ["placebo", "e_value"]
    assert len(content["refits"]) == 2
    assert content["e_value"]["interval"] >= 1.0
    assert content["folder"] == str(fresh)


def test_quiet_is_one_line(fresh) -> None:
    told = run("refute", fresh, "--tests", "e_value", "--quiet")
    assert told.exit_code == 0, told.output
    assert len(told.stdout.splitlines()) == 1
    assert told.stderr == ""


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--tests", "placbo"], 2, "did you mean 'placebo'?"),
        (["--negative-control", "befor"], 3, "did you mean 'before'?"),
        (["--tests", "noise_correlation"], 2, "FedCI or CausalFI"),
    ],
)
def test_what_is_not_there_is_refused_and_nothing_is_written(fresh, words, code, told) -> None:
    answer = run("refute", fresh, *words)
    assert answer.exit_code == code
    assert told in answer.stderr
    assert not any((fresh / name).exists() for name in FILES)


def test_a_folder_without_results_or_without_tables_is_refused(fresh, tmp_path) -> None:
    answer = run("refute", tmp_path / "none", "--json")
    assert answer.exit_code == 7
    assert "unpooled run" in json.loads(answer.stdout)["error"]["remedy"]
    study = fresh / "study.toml"
    study.write_text(study.read_text().partition("[sites.south]")[0])
    answer = run("refute", fresh)
    assert answer.exit_code == 7
    assert "no table of: south" in answer.stderr


def test_tables_that_have_changed_are_refused(fresh) -> None:
    table = fresh.parent / "north.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:-1]))
    answer = run("refute", fresh, "--tests", "e_value")
    assert answer.exit_code == 2
    assert "those that the model was fitted to" in answer.stderr


def test_the_sentence_and_the_figure_name_what_is_worrying() -> None:
    rows = [("placebo", 0.3, 0.1, 0.5, True, "…"), ("e_value", 1.0, 0.8, 1.2, False, "…")]
    table = pd.DataFrame(rows, columns=["test", "estimate", "lower", "upper", "worrying", "words"])
    found = Refutation(Refit(1.0, 0.8, 1.2, 0.1), table, pd.DataFrame(), {})
    assert sentence(found) == "1 of 2 robustness checks is worrying: placebo."
    passed = Refutation(found.main, table.tail(1), pd.DataFrame(), {})
    assert sentence(passed) == "No worrying result in 1 robustness check."
    shown = drawn(found.main._asdict(), table)
    assert shown["test"].tolist() == [MAIN, "placebo"], "an E-value is no estimate of its own"
    ax = forest(shown, outcome="weight", unit="kg")
    assert "weight (kg)" in ax.get_xlabel()
    assert [text.get_text() for text in ax.texts] == ["WARN", ""]
