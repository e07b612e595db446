"""`unpooled transport` as it is used, after a real run."""

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
from unpooled.cli.transport import read_moments
from unpooled.errors import StudyError
from unpooled.estimators.transport import MODIFIERS, SAMPLE, WEIGHTS, WHOLE

STUDY = """
[study]
seed = 3
[columns]
treatment = "w"
outcome = "y"
covariates = ["x", "k"]
[method]
name = "aipw"
draws = 100
[sites.north]
path = "north.csv"
[sites.south]
path = "south.csv"
"""


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The results of two sites, people elsewhere, and their moments; the effect is 1 + x."""
    folder = tmp_path_factory.mktemp("transported")
    for seed, site in enumerate(("north", "south")):
        random = np.random.default_rng(seed)
        x, k = random.standard_normal(150), random.choice(["a", "b"], 150)
        w = random.binomial(1, 1 / (1 + np.exp(-x)))
        y = x + w * (1.0 + x) + random.standard_normal(150)
        pd.DataFrame({"x": x, "k": k, "w": w, "y": y}).to_csv(folder / f"{site}.csv", index=False)
    random = np.random.default_rng(9)
    there = pd.DataFrame({"x": random.normal(1.0, 0.7, 80), "k": random.choice(["a", "b"], 80)})
    there.to_csv(folder / "there.csv", index=False)
    (folder / "moments.toml").write_text('x = [1.0, 0.7]\n"k=b" = 0.5\n')
    (folder / "study.toml").write_text(STUDY)
    told = run("run", folder / "study.toml", "--output", folder / "results", "--quiet")
    assert told.exit_code == 0, told.output
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("whole", "people_are"), [(False, SAMPLE), (True, WHOLE)])
def test_a_table_gives_the_effect_there_and_what_it_assumes(folder, whole, people_are) -> None:
    words = ("transport", folder / "results", "--table", folder / "there.csv", *["--whole"] * whole)
    told = run(*words)
    assert told.exit_code == 0, told.output
    found = up.load(folder / "results/model").transport(folder / "there.csv", sample=not whole)
    content = json.loads(run(*words, "--json").stdout)
    assert content["ate"] == pytest.approx(found.ate())
    assert content["ate_interval"] == pytest.approx(found.ate_interval())
    assert content["assumptions"] == list(found.assumptions)
    assert found.assumptions[1:] == (MODIFIERS, people_are)
    lines = told.stdout.splitlines()
    assert lines[0].startswith(f"In this population, the average effect of 'w' on 'y' is {found.ate():+.2f}")
    assert "in the study, it is" in lines[0]
    assert any(line.startswith("difference") for line in lines)
    assert any(line.startswith("PASS target within the study") for line in lines)
    assert lines[-1] == f"  - {people_are}"
    assert run(*words, "--quiet").stdout.splitlines() == lines[:1]


@pytest.mark.slow
def test_moments_give_the_effect_there(folder) -> None:
    told = run("transport", folder / "results", "--moments", folder / "moments.toml", "--json")
    assert told.exit_code == 0, told.output
    content = json.loads(told.stdout)
    tables = {site: folder / f"{site}.csv" for site in ("north", "south")}
    model = up.load(folder / "results/model").attach(tables)
    assert content["ate"] == pytest.approx(model.transport_to_moments({"x": (1.0, 0.7), "k=b": 0.5}).ate())
    assert content["assumptions"][-1] == WEIGHTS
    assert content["checks"][0]["name"] == "effective sample size of the target"


@pytest.mark.slow
def test_what_cannot_be_transported_is_refused(folder, tmp_path) -> None:
    results, table = folder / "results", folder / "there.csv"
    for words, code, told in (
        ([results], 2, "found: neither"),
        ([results, "--table", table, "--moments", folder / "moments.toml"], 2, "found: both"),
        ([results, "--moments", folder / "moments.toml", "--whole"], 2, "--whole is about the people"),
        ([tmp_path, "--table", table], 7, "transport needs the folder of a finished study"),
        ([results, "--table", folder / "nowhere.csv"], 3, "nowhere.csv"),
        ([results, "--moments", folder / "nowhere.toml"], 2, "no file that can be read"),
    ):
        answer = run("transport", *words)
        assert answer.exit_code == code, answer.output
        assert told in answer.stderr
    shutil.copytree(folder, tmp_path / "study")
    study = tmp_path / "study/results/study.toml"
    study.write_text(study.read_text().partition("[sites.south]")[0])
    answer = run("transport", study.parent, "--moments", folder / "moments.toml", "--json")
    assert answer.exit_code == 7
    assert "no table of: south" in json.loads(answer.stdout)["error"]["found"]
    assert run("transport", study.parent, "--table", table).exit_code == 0, "which needs no tables"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("age = 63.0 8", "not valid TOML"),
        ('age = "old"', "for 'age'"),
        ("age = [1, 2, 3]", "for 'age'"),
        ("age = [1.0, 'b']", "for 'age'"),
        ("flag = true", "for 'flag'"),
        ("[moments]\nage = 63.0", "for 'moments'"),
    ],
)
def test_moments_that_are_no_numbers_are_refused(tmp_path, text, told) -> None:
    path = tmp_path / "moments.toml"
    path.write_text(text)
    with pytest.raises(StudyError, match=told):
        read_moments(path)
    path.write_text('age = [63, 8.0]\nsevere = 0.6\n"region=south" = [0.2]\n')
    assert read_moments(path) == {"age": (63.0, 8.0), "severe": 0.6, "region=south": 0.2}
