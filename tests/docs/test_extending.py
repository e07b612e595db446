"""docs/extending.md: its skeletons, put into a copy of the package, work there without any other change."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

import jax
import pytest
from tests.docs.markdown import ROOT, Block, blocks, quoted, rows

import unpooled
from oracle.world import STUDY, frames
from unpooled.coordinator.rounds import Conduct
from unpooled.coordinator.run import study_procedure
from unpooled.disclosure.limits import NONE
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.methods.method import with_settings

PAGE = ROOT / "docs/extending.md"
MOST_FILES = 20
"""Of the package, in one round of a stage: what somebody has to read to follow it."""
MESSAGES, ANSWER = "src/unpooled/protocol/messages.py", "src/unpooled/site/answer.py"


def named_blocks() -> dict[str, Block]:
    """The blocks whose first line names the file they belong to."""
    found = {match[1]: block for block in blocks(PAGE) if (match := re.match(r"# (src/\S+)\n", block.text))}
    assert len(found) == 7
    return found


def case() -> str:
    (found,) = [block.text for block in blocks(PAGE) if block.text.lstrip().startswith("case ")]
    return found


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its contract, with the page's skeletons in the files that they name."""
    root = tmp_path_factory.mktemp("extended")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src/unpooled", root / "src/unpooled", ignore=ignored)
    for part in ("contract", "oracle"):
        shutil.copytree(ROOT / "tests" / part, root / "tests" / part, ignore=ignored)
    for file in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(ROOT / file, root / file)
    for name, block in named_blocks().items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(f"{before}\n\n{block.text}" if before else block.text, encoding="utf-8")
    _insert(root / ANSWER, before="        case Together(questions):", text=case())
    _insert(root / ANSWER, before="from unpooled.protocol.messages import (", text=IMPORT)
    _insert(root / "tests/contract/cases.py", before='    "aipw": (', text=CASE)
    return root


IMPORT = "from unpooled.protocol.messages import CompletePeople, CountComplete\n"
CASE = '    "mean_difference": ("mean_difference", {"draws": 40}),\n'


def _insert(path: Path, *, before: str, text: str) -> None:
    content = path.read_text(encoding="utf-8")
    assert content.count(before) == 1
    path.write_text(content.replace(before, text + before), encoding="utf-8")


def python(copy: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_new_method_keeps_the_contract_of_all_methods(copy: Path) -> None:
    chosen = ["-k", "mean_difference or under_contract", "-p", "no:cacheprovider", "-v"]
    said = python(copy, "-m", "pytest", "tests/contract/test_methods.py", *chosen)
    passed = re.search(r"(\d+) passed", said)
    assert passed is not None and int(passed[1]) > 20, said
    assert re.search(r"mean_difference\b.*pipes.* PASSED|pipes.*mean_difference.* PASSED", said), said


@pytest.mark.slow
def test_the_new_method_is_known_by_its_name(copy: Path) -> None:
    script = """
from unpooled.estimators import ESTIMATORS, of_study
from unpooled.methods.method import METHODS
from unpooled.study import Study
study = Study(treatment="w", outcome="y", covariates=["a"], method={"name": "mean_difference", "draws": 30})
print(type(of_study(study)).__module__, of_study(study).draws, set(METHODS) == set(ESTIMATORS))
"""
    assert python(copy, "-c", script).split() == ["unpooled.estimators.mean_difference", "30", "True"]


ASKED = """
from pathlib import Path
from unpooled.coordinator.rounds import Conduct
from unpooled.diagnostics.review import review
from unpooled.disclosure.limits import NONE
from unpooled.engines.gateways_here import LocalTransport
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.engines.one_by_one import OneByOne
from unpooled.engines.remote import RemoteEngine
from unpooled.methods.method import with_explicit_settings
from unpooled.protocol.messages import CompletePeople, CountComplete
from unpooled.coordinator.checkpoint import Checkpoint
from unpooled.site.approval import Approvals
from unpooled.site.folder import SiteFolder
from unpooled.site.identity import public_identity
from unpooled.site.ledger import entries
from unpooled.study import Source, Study
import numpy as np
import pandas as pd

study = with_explicit_settings(Study(
    treatment="w", outcome="y", covariates=["a"], incomplete=["u"], method={"name": "causal_fi"}
))
rng = np.random.default_rng(0)
sizes, tables, folders = {"north": 40, "south": 60}, {}, {}
for name, n in sizes.items():
    table = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "u", "y"]).assign(w=np.arange(n) % 2)
    tables[name] = table.assign(u=table["u"].where(np.arange(n) % 4 > 0))
    tables[name].to_parquet(f"{name}.parquet")
    folders[name] = SiteFolder.create(name, name, Source(path=f"{name}.parquet")).folder
identities = {name: public_identity(folder / "identity.key") for name, folder in folders.items()}
for folder in folders.values():
    Approvals(folder / "approvals.json").decide(study, approved=True, sites=identities)

def count():
    return (yield CountComplete(study.columns))

sites = open_sites(study, tables, NONE)
for engine in (InProcess(sites), OneByOne(sites), RemoteEngine(LocalTransport(folders), study)):
    conduct = Conduct(count(), engine, Checkpoint(Path("rounds")))
    (happened,) = conduct
    assert happened.question == "count complete"
    assert conduct.result == CompletePeople(100, 75), conduct.result
resumed = Conduct(count(), InProcess(sites), Checkpoint(Path("rounds"), resume=True))
assert [happened.replayed for happened in resumed] == [True]
assert resumed.result == CompletePeople(100, 75)
(entry,) = entries(folders["south"] / "ledger.jsonl")
assert (entry.question, entry.kind) == ("count complete", "CompletePeople")
assert entry.reveals == CompletePeople.reveals
assert entry.shapes == ("people: number", "complete: number")
assert review(study, sites["north"]).leaving["count complete"] == CompletePeople.reveals
other = study.model_copy(update={"columns": study.columns.model_copy(update={"incomplete": ()})})
assert CountComplete(study.columns).mismatch(other) and not CountComplete.concerns(other)
"""


@pytest.mark.slow
def test_the_new_message_is_asked_answered_combined_resumed_reviewed_and_recorded(copy: Path) -> None:
    python(copy, "-c", ASKED)


@pytest.mark.slow
def test_the_new_files_keep_the_layers(copy: Path) -> None:
    command = "from importlinter.cli import lint_imports_command as run; run()"
    assert "0 broken" in python(copy, "-c", command, "--no-cache")


def files_of_a_round() -> set[str]:
    """The files of the package in which code runs from AIPW's first `Ask` to the combined reply."""
    study = with_settings(STUDY, "aipw", {"draws": 40, "estimator": "difference"}, seed=1)
    conduct = iter(Conduct(study_procedure(study), InProcess(open_sites(study, frames(), NONE))))
    while next(conduct).question != "adopt":
        pass
    jax.clear_caches()  # a stage's code runs when it is compiled
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(frame.f_code.co_filename)

    threading.setprofile(note)  # sites are asked in threads
    sys.setprofile(note)
    try:
        happened = next(conduct)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert happened.question == "outcome: statistics"
    package = Path(unpooled.__file__).parent
    inside = [Path(name).relative_to(package) for name in seen if Path(name).is_relative_to(package)]
    return {f"src/unpooled/{path.as_posix()}" for path in inside}


@pytest.mark.slow
def test_a_round_touches_the_files_that_the_page_lists_and_no_more_than_a_reader_can_follow() -> None:
    found = files_of_a_round()
    listed = {name for row in rows(PAGE) if len(row) == 2 for name in quoted(row[1])}
    assert found == listed
    assert len(found) <= MOST_FILES
    assert f"in {len(found)} files of the package" in PAGE.read_text(encoding="utf-8")


def test_the_places_to_edit_are_counted() -> None:
    counts = {row[0]: int(row[1]) for row in rows(PAGE) if len(row) == 3}
    assert counts == {"a method": 2, "a stage": 2, "a message": 2, "an engine": 1}
