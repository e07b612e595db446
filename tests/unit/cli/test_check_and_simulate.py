"""`unpooled simulate`, `new` and `check`."""

import json

from typer.testing import CliRunner

from unpooled.cli.app import app
from unpooled.study import read_study

runner = CliRunner()


def run(*words):
    return runner.invoke(app, [str(word) for word in words], env={"COLUMNS": "160"})


def test_simulate_writes_a_study_that_check_accepts(tmp_path):
    made = run("simulate", "fedci-data1", tmp_path / "sim", "--sites", 2, "--rows", 40, "--json")
    assert made.exit_code == 0
    study = json.loads(made.stdout)["study"]
    checked = run("check", study)
    assert checked.exit_code == 0
    assert "The 2 sites agree." in checked.stdout
    assert "draws of the average effect at this site" in checked.stdout
    assert "would refuse" in checked.stdout  # 20 covariates for 40 people


def test_check_as_json_is_one_object(study):
    checked = run("check", study, "--json")
    found = json.loads(checked.stdout)
    assert set(found["sites"]) == {"site1", "site2", "site3"}
    assert all(site["control"] + site["treated"] == 30 for site in found["sites"].values())
    assert {"kind", "size", "reveals"} == set(found["leaving"][0])


def test_new_writes_a_study_file_that_reads(tmp_path):
    path = tmp_path / "study.toml"
    assert run("new", path).exit_code == 0
    assert read_study(path).columns.treatment == "treatment"


def test_new_never_overwrites(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text("mine")
    result = run("new", path)
    assert result.exit_code == 7
    assert "already there" in result.stderr
    assert path.read_text() == "mine"


def test_new_into_a_missing_folder_is_explained(tmp_path):
    result = run("new", tmp_path / "nowhere" / "study.toml")
    assert result.exit_code == 7
    assert "cannot be written" in result.stderr
