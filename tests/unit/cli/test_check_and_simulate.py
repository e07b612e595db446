"""`unpooled simulate`, `new` and `check`."""

import json
import shlex
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from unpooled.cli.app import app
from unpooled.cli.simulate import NAMES
from unpooled.data import simulation
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
    assert "The 2 sites agree on the columns." in checked.stdout
    assert "draws of the mean outcome under control and under treatment" in checked.stdout
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
    assert "already exists" in result.stderr
    assert path.read_text() == "mine"


def test_new_into_a_missing_folder_is_explained(tmp_path):
    result = run("new", tmp_path / "nowhere" / "study.toml")
    assert result.exit_code == 7
    assert "must be writable" in result.stderr.splitlines()[0]


def test_the_next_command_can_be_pasted(tmp_path):
    folder = tmp_path / "my study's"
    made = run("simulate", "fedci-data1", folder, "--rows", 40)
    path = folder / "study.toml"
    wanted = ["unpooled", "run", str(path), "--output", "results/"]
    for told in (made, run("check", path)):
        assert shlex.split(told.stdout.partition("next: ")[2].strip()) == wanted
    told = run("new", tmp_path / "a b.toml").stdout
    assert shlex.split(told.partition("then: ")[2]) == ["unpooled", "check", str(tmp_path / "a b.toml")]


def test_the_help_of_simulate_lists_every_name():
    assert NAMES == simulation.NAMES
    assert "fedci-count" in run("simulate", "--help").stdout


def odd_study(folder, site, column):
    """A small study whose site and column have odd names."""
    rows = [f"{row % 2},{row * 0.5 - row % 3},{row * row % 17}" for row in range(40)]
    for table, kept in (("a", rows[:18]), ("b", rows[18:])):
        (folder / f"{table}.csv").write_text("\n".join([f"w,y,{column}", *kept]) + "\n", encoding="utf-8")
    (folder / "study.toml").write_text(
        f'[columns]\ntreatment = "w"\noutcome = "y"\ncovariates = ["{column}"]\n'
        f'[sites]\n"{site}" = "a.csv"\nplain = "b.csv"\n',
        encoding="utf-8",
    )
    return folder / "study.toml"


def test_brackets_and_colons_in_names_are_shown_as_they_are(tmp_path):
    told = run("check", odd_study(tmp_path, "[red]x[/nope]", "bmi [kg/m2] :dog:"))
    assert told.exit_code == 0, told.stderr
    assert "[red]x[/nope]" in told.stdout and "bmi [kg/m2] :dog:" in told.stdout


@pytest.mark.slow
@pytest.mark.parametrize("encoding", [pytest.param("ascii", marks=pytest.mark.thorough), "cp1252"])
def test_letters_the_terminal_lacks_are_replaced(tmp_path, environment, encoding):
    words = ["check", str(odd_study(tmp_path, "\u0141\u00f3d\u017a", "\u03b1"))]
    told = subprocess.run(
        [sys.executable, "-c", "from unpooled.cli.app import main; main()", *words],
        env={**environment, "PYTHONIOENCODING": encoding},
        capture_output=True,
    )
    assert told.returncode == 0, told.stderr
    assert b"?" in told.stdout
