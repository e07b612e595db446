"""The walk of docs/deployment.md on one machine: its own commands, in processes of their own."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
from tests.docs.markdown import ROOT, blocks

PAGE = ROOT / "docs" / "deployment.md"
SITES = ("north", "south")
QUICK = "basis = 6\nevaluations = 8\ndraws = 40\n"
"""Settings of the page's method: here much is compiled for few people."""
SCRIPT = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"  # a shell's '&' takes it away
    "from unpooled.cli.app import main; main()"
)


def commands() -> list[str]:
    """Every command of ours on the page, beside which output may stand."""
    lines = [line for block in blocks(PAGE) for line in block.text.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ unpooled ")]


def said(beginning: str) -> str:
    """The page's command that begins so."""
    (found,) = (line for line in commands() if line.startswith(f"unpooled {beginning}"))
    return found


def file_on_page(beginning: str) -> str:
    (found,) = (block.text for block in blocks(PAGE) if block.text.startswith(beginning))
    return found


@dataclass
class Running:
    """A command that stays."""

    process: subprocess.Popen[bytes]
    output: Path

    def wait_for(self, text: str, seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while text not in self.output.read_text():
            assert self.process.poll() is None, f"it ended: {self.output.read_text()}"
            assert time.monotonic() < until, f"no '{text}' in: {self.output.read_text()}"
            time.sleep(0.1)

    def interrupt(self) -> int:
        """Ctrl-C, and the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)


@dataclass
class Machine:
    """Where one party works: a folder, and what a command is put behind to run in the party's network."""

    folder: Path
    behind: tuple[str, ...] = ()
    running: list[Running] = field(default_factory=list)

    def run(self, line: str, seconds: float = 240.0) -> str:
        """What a command says that ends well."""
        done = subprocess.run(
            self._words(line),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, line: str) -> Running:
        output = self.folder / f"said-{len(self.running)}.txt"
        with output.open("wb") as file:
            process = subprocess.Popen(
                self._words(line),
                cwd=self.folder,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self.running.append(Running(process, output))
        return self.running[-1]

    def _words(self, line: str) -> list[str]:
        return [*self.behind, sys.executable, "-c", SCRIPT, *shlex.split(line)[1:]]


@contextmanager
def machines(root: Path, behind: Mapping[str, tuple[str, ...]] | None = None) -> Iterator[dict[str, Machine]]:
    """A folder for the coordinator and for every site; at the end nothing runs in any of them."""
    found = {}
    for name in ("coordinator", *SITES):
        (root / name).mkdir()
        found[name] = Machine(root / name, (behind or {}).get(name, ()))
    try:
        yield found
    finally:
        for one in (one for machine in found.values() for one in machine.running):
            one.process.kill()
            one.process.wait()


def processes(root: Path) -> list[str]:
    """Whatever still runs from these folders."""
    found = []
    for one in psutil.process_iter():
        try:
            words = " ".join(one.cmdline())
            if str(root) in words or str(root) in one.cwd():
                found.append(words)
        except psutil.Error:
            continue
    return found


def table(seed: int, people: int = 160) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    age, bmi = random.normal(60, 10, people), random.normal(26 + seed, 4, people)
    sex = random.integers(0, 2, people)
    drug = random.binomial(1, 1 / (1 + np.exp(-(age - 60) / 10)))
    weight = 2.8 * bmi + 0.05 * age + drug * (1.5 + sex) + random.normal(0, 1, people)
    return pd.DataFrame({"age": age, "bmi": bmi, "sex": sex, "drug": drug, "weight": weight})


def one_process(root: Path) -> Path:
    """The results of the same study over the same tables, all in one hand."""
    alone = Machine(root / "alone")
    alone.folder.mkdir()
    tables = "".join(f'[sites.{name}]\npath = "../{name}/patients.csv"\n' for name in SITES)
    (alone.folder / "study.toml").write_text(file_on_page("[study]") + QUICK + tables)
    alone.run("unpooled run study.toml --output results/")
    return alone.folder / "results"


def in_one_hand(folder: Path) -> None:
    """Make the site one of a rehearsal without limits, so that its numbers are those of one process."""
    file = folder / "site.toml"
    text = re.sub(r"(?m)^(name = .*)$", r"\1\nrehearsal = true", file.read_text(), count=1)
    for key, value in {"rows": "0", "cell": "0", "share": "inf"}.items():
        text, found = re.subn(rf"(?m)^{key} = [^\s#]+", f"{key} = {value}", text)
        assert found == 1
    file.write_text(text)


def walk(at: Mapping[str, Machine], host: str, port: int) -> None:
    """What the page says, from nothing to a result; at the end everybody has left by Ctrl-C."""
    coordinator, root = at["coordinator"], at["coordinator"].folder.parent
    text = file_on_page('name = "lungs"').replace("study.example.org", host).replace("8102", f"{port}")
    (coordinator.folder / "consortium.toml").write_text(text)
    told = coordinator.run(said("coordinator create"))
    assert f"TCP to {host}, port {port}" in told
    server = coordinator.start(said("coordinator start"))
    server.wait_for("Listening")
    sites, fingerprints, consortium = {}, [], coordinator.folder / "consortium"
    for number, name in enumerate(SITES):
        own = at[name]
        shutil.copy(consortium / "invitations" / f"{name}.json", own.folder)
        table(number).to_csv(own.folder / "patients.csv", index=False)
        joined = own.run(said("site join").replace("north", name))
        shutil.copy(own.folder / name / f"{name}.request.json", coordinator.folder)
        admitted = coordinator.run(said("coordinator admit").replace("north", name))
        (words,) = (line for line in joined.splitlines() if line.startswith("fingerprint of"))
        assert words in admitted, "what is compared by telephone"
        fingerprints.append(words.rpartition(": ")[2])
        shutil.copy(consortium / "admissions" / f"{name}.admission.json", own.folder)
        sites[name] = own.start(said("site start").replace("north", name))
    for name, site in sites.items():
        site.wait_for(f"'{name}' is connected to {host}:{port}")
        server.wait_for(f"{name} is connected.")
    assert coordinator.run(said("coordinator status")).split() == [
        word for name in SITES for word in (name, "connected")
    ]
    for name in ("coordinator", *SITES):
        (at[name].folder / "study.toml").write_text(file_on_page("[study]") + QUICK)
        shutil.copy(consortium / "sites.json", at[name].folder)
    for name in SITES:
        in_one_hand(at[name].folder / name)
        line = said("site review").replace("north", name)
        reviewed = at[name].run(f"{line} --approve")
        assert "approved: 'drug-and-weight'" in reviewed
        assert all(words in reviewed for words in fingerprints)
    coordinator.run(said("run"))
    there, here = coordinator.folder / "results", one_process(root)
    assert (there / "draws.csv").read_bytes() == (here / "draws.csv").read_bytes()
    assert (there / "summary.csv").read_bytes() == (here / "summary.csv").read_bytes()
    for name in SITES:
        held = at[name].run(said("site ledger").replace("north", name))
        assert re.match(r"\d+ lines verified", held)
    for site in sites.values():
        assert site.interrupt() == 0
        assert site.output.read_text().endswith("Disconnected.\n")
    assert server.interrupt() == 0
    assert server.output.read_text().endswith("Stopped.\n")
    assert processes(root) == []


@pytest.mark.slow
def test_every_command_of_the_page_takes_its_options() -> None:
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    found = [shlex.split(line, comments=True)[1:] for line in commands()]
    assert len(found) > 6
    for words in found:
        name = words[:2] if words[0] in ("site", "coordinator") else words[:1]
        run = [sys.executable, "-c", SCRIPT, *name, "--help"]
        done = subprocess.run(run, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        assert [word for word in words if word.startswith("--") and word not in done.stdout] == []


@pytest.mark.slow
@pytest.mark.thorough
def test_the_walk_of_the_page_ends_with_the_numbers_of_one_process_and_nobody_left(tmp_path: Path) -> None:
    pytest.importorskip("nvflare")
    from unpooled.engines.nvflare.rehearsal import free_port

    with machines(tmp_path) as at:
        walk(at, "localhost", free_port())
