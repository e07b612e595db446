"""One small simulated study, run once by the real command; what it compiled serves the runs that follow."""

import json
import os
import subprocess
import sys

import pytest

# A shell starts background jobs deaf to Ctrl-C, their children inherit that: so the program listens itself.
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from unpooled.cli.app import main
main()
"""
COMMAND = (sys.executable, "-c", PROGRAM)
SMALL = 'structure = "isotropic"\ndraws = 20\nbasis = 5\nevaluations = 9\n'


@pytest.fixture(scope="session")
def environment():
    """Environment of every command."""
    return {**os.environ, "COLUMNS": "160", "NO_COLOR": "1"}


@pytest.fixture(scope="session")
def start(environment):
    """Start the command as a process of its own."""

    def start(*words):
        return subprocess.Popen(
            [*COMMAND, *map(str, words)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture(scope="session")
def unpooled(start):
    """Run the command to its end: code, stdout, stderr."""

    def run(*words):
        process = start(*words)
        out, err = process.communicate(timeout=280)
        return process.returncode, out, err

    return run


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """The path of a small study file over three sites of thirty people."""
    from unpooled.data.simulation import simulate, write

    data = simulate("fedci-data1", sites=3, rows=30, seed=5, dimension=3)
    path = write(data, tmp_path_factory.mktemp("simulated") / "study")
    path.write_text(path.read_text().replace('name = "fedci"\n', f'name = "fedci"\n{SMALL}'))
    return path


@pytest.fixture(scope="session")
def finished(unpooled, study, tmp_path_factory):
    """The results folder of that study, and what the command printed."""
    folder = tmp_path_factory.mktemp("run") / "results"
    code, out, err = unpooled("run", study, "--output", folder)
    assert code == 0, err
    return folder, out


@pytest.fixture(scope="session")
def answer(finished):
    return json.loads((finished[0] / "result.json").read_text())
