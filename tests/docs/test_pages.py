"""Code in README and docs runs; commands, files and links they name exist."""

from __future__ import annotations

import gc
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.docs.markdown import PAGES, ROOT, blocks, links, quoted

from unpooled.methods import method
from unpooled.protocol.messages import question_kinds

IDS = [str(page.relative_to(ROOT)) for page in PAGES]
SLOWEST = {"causal_fi.md", "causal_rff.md"}
"""Pages whose examples compile for a minute."""
LANGUAGES = {"python", "console", "text"}
"""Executed, looked up, and what is output or a drawing."""


def pages_with(language: str) -> list[Any]:
    found = [page for page in PAGES if any(block.language == language for block in blocks(page))]
    return [
        pytest.param(
            page, id=str(page.relative_to(ROOT)), marks=[pytest.mark.thorough] * (page.name in SLOWEST)
        )
        for page in found
    ]


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("python"))
def test_python_blocks_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(method, "METHODS", dict(method.METHODS))  # a page may add one
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    names = vars(module)
    for block in blocks(page):
        if block.language == "python":
            # Blank lines before the code, so that a traceback names the page's own line.
            code = "\n" * (block.line - 1) + block.text
            exec(compile(code, str(page), "exec", dont_inherit=True), names)
    if page.name == "README.md":
        people = names["people"]
        design = np.column_stack([np.ones(len(people)), people[["age", "sex", "quit"]]])
        stacked = np.linalg.lstsq(design, people["weight"], rcond=None)[0][-1]
        assert f"{stacked:.2f}" == "2.73", "as the page says"
        assert abs(names["model"].ate() - stacked) < 0.13, "as if the tables had been stacked"
        assert names["lower"] < stacked < names["upper"] < names["lower"] + 1.0
        assert names["model"].effect(names["newcomer"], site="north").shape == (1,)
    names.clear()
    gc.collect()  # messages that a page defined are known until they are collected
    assert {kind.__module__.rpartition(".")[0] for kind in question_kinds().values()} == {"unpooled.protocol"}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_block_says_what_it_is(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= LANGUAGES


def commands(program: str) -> list[list[str]]:
    """Every command line of the pages that calls this program, comments left out."""
    lines = [
        line.removeprefix("$ ")
        for page in PAGES
        for block in blocks(page)
        if block.language == "console"
        for line in block.text.splitlines()
    ]
    split = [shlex.split(line, comments=True) for line in lines]
    return [words for words in split if words and words[0] == program]


def test_make_targets_exist() -> None:
    rules = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = {words[1] for words in commands("make")}
    assert named == {"env", "demo", "check", "test"}
    assert named <= set(rules)


@pytest.mark.parametrize("words", commands("unpooled"), ids=" ".join)
def test_commands_and_their_options_exist(words: list[str]) -> None:
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    script = "from unpooled.cli.app import main; main()"
    command = words[1:3] if words[1] in ("benchmark", "coordinator", "site") else words[1:2]
    run = [sys.executable, "-c", script, *command, "--help"]
    done = subprocess.run(run, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for option in (word for word in words if word.startswith("--")):
        assert option in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    assert [target for target in links(page) if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_files_named_exist(page: Path) -> None:
    named = [
        name
        for name in quoted(page.read_text(encoding="utf-8"))
        if re.fullmatch(r"(src|docs)/[\w./-]+", name) and "NAME" not in name
    ]
    assert [name for name in named if not (ROOT / name).exists()] == []
