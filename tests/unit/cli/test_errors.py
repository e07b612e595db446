"""How commands end badly."""

import json
import shlex
import subprocess
import sys
import time

import pytest
import typer
from typer.testing import CliRunner

from unpooled.cli.app import app
from unpooled.cli.errors import reporting_errors
from unpooled.errors import (
    ApprovalError,
    DataError,
    FitError,
    LimitRefusal,
    MessageError,
    ResultsError,
    SchemaError,
    StudyError,
)

runner = CliRunner()
CODES = {
    StudyError: 2,
    DataError: 3,
    SchemaError: 3,
    LimitRefusal: 4,
    MessageError: 5,
    FitError: 6,
    ResultsError: 7,
    ApprovalError: 8,
}


def run(*words):
    return runner.invoke(app, [str(word) for word in words])


@pytest.mark.parametrize(("kind", "code"), CODES.items())
def test_every_error_tells_its_three_parts_and_exits_with_its_code(kind, code, capsys):
    with pytest.raises(typer.Exit) as raised, reporting_errors():
        raise kind("a thing", found="another", remedy="a way out")
    assert raised.value.exit_code == code >= 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "a thing\n  found: another\n  try:   a way out" in told.err


def test_as_json_an_error_is_an_object_on_stdout(capsys):
    with pytest.raises(typer.Exit), reporting_errors(as_json=True):
        raise DataError("a thing", found="another", remedy="a way out")
    told = capsys.readouterr()
    assert told.err == ""
    assert json.loads(told.out)["error"] == {
        "kind": "DataError", "expected": "a thing", "found": "another", "remedy": "a way out", "exit_code": 3,
    }  # fmt: skip


@pytest.mark.parametrize("debug", [0, 1])
def test_an_unexpected_error_never_quotes_a_value(debug, capsys):
    with pytest.raises(typer.Exit) as raised, reporting_errors(debug=debug):
        float("Jane Doe")
    assert raised.value.exit_code == 1
    told = capsys.readouterr()
    assert "Jane" not in told.err.replace('float("Jane Doe")', "")  # the source line is this test's own
    assert "ValueError" in told.err
    assert ("--debug" in told.err) == (debug == 0)


def test_debug_twice_shows_the_message(capsys):
    with pytest.raises(typer.Exit), reporting_errors(debug=2):
        float("".join(["Jane", " Doe"]))
    assert "Jane Doe" in capsys.readouterr().err


def test_a_missing_study_exits_with_2(tmp_path):
    result = run("run", tmp_path / "none.toml", "--output", tmp_path / "results")
    assert result.exit_code == 2
    assert "unpooled new" in result.stderr
    assert not (tmp_path / "results").exists()


def test_a_missing_table_exits_with_3_and_leaves_the_folder_free(study, tmp_path):
    broken = tmp_path / "study.toml"
    broken.write_text(study.read_text())  # its tables are not beside it here
    words = ("run", broken, "--output", tmp_path / "results", "--json")
    for _ in range(2):
        result = run(*words)
        assert result.exit_code == 3
        assert json.loads(result.stdout)["error"]["kind"] == "DataError"
        assert not (tmp_path / "results").exists()


def test_sites_that_do_not_agree_leave_the_folder_free(study, tmp_path):
    for table in study.parent.glob("site*.csv"):
        text = table.read_text()
        (tmp_path / table.name).write_text(text.replace(",0,", ",3,") if table.name == "site2.csv" else text)
    (tmp_path / "study.toml").write_text(study.read_text())
    result = run("run", tmp_path / "study.toml", "--output", tmp_path / "results")
    assert result.exit_code == 3
    assert "exactly two levels" in result.stderr
    assert not (tmp_path / "results").exists()


def test_an_unknown_setting_suggests_the_nearest(study, tmp_path):
    path = study.parent / "misspelt.toml"
    path.write_text(study.read_text().replace("draws = 20", "drwas = 20"))
    result = run("run", path, "--output", tmp_path / "results")
    assert result.exit_code == 2
    assert "did you mean 'draws'?" in result.stderr
    assert not (tmp_path / "results").exists()


def test_results_in_the_way_exit_with_7(study, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    result = run("run", study, "--output", tmp_path, "--json")
    assert result.exit_code == 7
    assert json.loads(result.stdout)["error"]["kind"] == "ResultsError"


def test_a_refusal_leaves_no_parent_that_it_made_and_every_folder_that_was_there(study, tmp_path):
    broken = tmp_path / "study.toml"
    broken.write_text(study.read_text())  # its tables are not beside it here
    assert run("run", broken, "--output", tmp_path / "a" / "b").exit_code == 3
    assert not (tmp_path / "a").exists()
    (tmp_path / "mine").mkdir()
    assert run("run", broken, "--output", tmp_path / "mine").exit_code == 3
    assert list((tmp_path / "mine").iterdir()) == []


def test_resuming_nothing_exits_with_7(study, tmp_path):
    result = run("run", study, "--output", tmp_path / "results", "--resume")
    assert result.exit_code == 7
    assert "nothing to resume" in result.stderr
    assert not (tmp_path / "results").exists()


def test_an_unknown_option_exits_with_2():
    assert run("run", "study.toml", "--outptu", "x").exit_code == 2


def test_help_answers_within_a_second(start):
    def seconds():
        began = time.perf_counter()
        process = start("--help")
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0 and "simulate" in out
        return time.perf_counter() - began

    # The best of a few: what is measured is this program, not the machine's other work.
    assert min(seconds() for _ in range(5)) < 1.0


def test_help_imports_nothing_heavy(environment):
    heavy = "('jax', 'pandas', 'numpy', 'matplotlib', 'pydantic', 'scipy')"
    program = f"import sys, unpooled.cli.app; print(*[name for name in {heavy} if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert told.stdout.strip() == ""
    assert told.returncode == 0


def test_the_version_is_told():
    assert run("--version").stdout.startswith("unpooled 0.")


def test_the_command_to_go_on_with_can_be_pasted(study, tmp_path, monkeypatch):
    def stop(_, folder, **__):
        (folder / "checkpoint.msgpack").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("unpooled.cli.run.fit_and_write", stop)
    folder = tmp_path / "my results"
    told = run("run", study, "--output", folder, "--seed", 3).stderr.partition("continue with: ")[2]
    wanted = ["unpooled", "run", str(study), "--output", str(folder), "--resume", "--seed", "3"]
    assert shlex.split(told) == wanted


def test_stopped_before_anything_was_written_there_is_nothing_to_go_on_with(study, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("unpooled.cli.run.fit_and_write", stop)
    result = run("run", study, "--output", tmp_path / "results")
    assert result.exit_code == 130
    assert "run it again" in result.stderr and "--resume" not in result.stderr
    assert not (tmp_path / "results").exists()


def test_a_reader_that_stops_reading_is_no_error():
    script = (
        "import typer\nfrom unpooled.cli.errors import reporting_errors\n"
        "with reporting_errors():\n    for _ in range(100_000):\n        typer.echo('a line')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=60)
    assert "should not have happened" not in said
    assert "BrokenPipe" not in said
