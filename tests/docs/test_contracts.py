"""The import contracts hold, and each of them can fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.markdown import ROOT

BREACHES = {
    "the coordinator imports a site": ("coordinator/breach.py", "import unpooled.site.answer", "rows"),
    "the coordinator imports data": ("coordinator/breach.py", "import unpooled.data.sources", "rows"),
    "a method reads tables": ("methods/breach.py", "import pandas", "rows"),
    "maths knows the protocol": ("maths/breach.py", "import unpooled.protocol.rows", "layers"),
    "a method knows the coordinator": ("methods/breach.py", "import unpooled.coordinator.rounds", "layers"),
    "the report knows the command line": ("report/breach.py", "import unpooled.cli", "layers"),
    "a layer that is not in the list": ("utils/__init__.py", "", "layers"),
    "a site prints with rich": ("site/breach.py", "import rich.console", "terminal"),
    "the command line draws": ("cli/breach.py", "import matplotlib.pyplot", "figures"),
    "the remote engine imports NVIDIA FLARE": ("engines/remote.py", "import nvflare", "engine"),
    "a message is pickled": ("protocol/breach.py", "import pickle", "pickle"),
}


def lint(folder: Path, *contracts: str) -> subprocess.CompletedProcess[str]:
    chosen = [word for name in contracts for word in ("--contract", name)]
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"]
    options = ["--config", str(ROOT / "pyproject.toml"), "--no-cache", *chosen]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [*command, *options], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src" / "unpooled", tmp_path / "unpooled")
    return tmp_path


def test_the_package_keeps_every_contract(copy: Path) -> None:
    done = lint(copy)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


@pytest.mark.parametrize(("file", "line", "contract"), BREACHES.values(), ids=BREACHES.keys())
def test_a_breach_is_seen(copy: Path, file: str, line: str, contract: str) -> None:
    breach = copy / "unpooled" / file
    breach.parent.mkdir(exist_ok=True)
    breach.write_text(line + "\n", encoding="utf-8")
    done = lint(copy, contract)
    assert done.returncode == 1, done.stdout
    assert "1 broken" in done.stdout
    assert Path(file).parent.name in done.stdout
