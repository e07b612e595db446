"""`unpooled plan`."""

import json

import pytest
from typer.testing import CliRunner

from unpooled.cli.app import app

runner = CliRunner()
STUDY = """\
[study]
name = "planned"
diagnostics = false
[columns]
treatment = "w"
outcome = "y"
covariates = ["a", "b"]
[method]
name = "{method}"
"""


def run(*words):
    return runner.invoke(app, [str(word) for word in words], env={"COLUMNS": "160"})


@pytest.fixture
def file(tmp_path):
    def write(method):
        path = tmp_path / "study.toml"
        path.write_text(STUDY.format(method=method))
        return path

    return write


def test_a_study_without_tables_is_planned_by_its_size(file):
    path = file("aipw")
    shown = run("plan", path, "--sites", 20, "--rows", 1000, "--engine", "nvflare", "--detail")
    assert shown.exit_code == 0, shown.stderr
    assert "aipw: 20 sites of up to 1,000 rows, 2 features" in shown.stdout
    assert "takes most of the time" in shown.stdout
    assert "treatment: statistics" in shown.stdout


def test_json_holds_both_ends(file):
    found = json.loads(run("plan", file("aipw"), "--sites", 3, "--rows", 500, "--json").stdout)
    assert found["rounds"][0] == found["rounds"][1] == 10
    assert {"stage", "asked", "thetas", "bytes_out", "bytes_in", "seconds"} == set(found["stages"][0][0])


def test_tables_that_are_here_are_counted(study):
    found = json.loads(run("plan", study, "--json").stdout)
    assert (found["sites"], found["rows"]) == (3, 30)


def test_slower_connections_take_longer(file):
    words = ("plan", file("aipw"), "--sites", 50, "--rows", 500, "--engine", "nvflare", "--json")
    fast, slow = (json.loads(run(*words, "--bandwidth", one).stdout)["seconds"][0] for one in (100, 10))
    assert slow["sending"] == pytest.approx(10 * fast["sending"])
    assert slow["waiting"] == fast["waiting"]


@pytest.mark.parametrize("options", [(), ("--sites", 3), ("--rows", 5), ("--sites", 0, "--rows", 500)])
def test_a_size_that_is_missing_or_impossible_is_explained(file, options):
    result = run("plan", file("aipw"), *options)
    assert result.exit_code not in (0, 1)
    assert "try:" in result.stderr
