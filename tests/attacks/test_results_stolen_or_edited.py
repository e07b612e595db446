"""Another user of the coordinator's machine reads a results folder, and somebody edits one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack
import pytest

from engines.stage import study, tables
from unpooled.coordinator.lock import NAME, alone
from unpooled.errors import ResultsError
from unpooled.estimators import of_study
from unpooled.report.results import CHECKPOINT, JOURNAL, claimed, write_results

ASKED = study("stolen", method={"name": "aipw", "draws": 40, "estimator": "difference"})


def fit(folder: Path, **more: Any) -> Any:
    files = {"checkpoint": folder / CHECKPOINT, "journal": folder / JOURNAL}
    return of_study(ASKED).fit(ASKED, tables(), **files, **more)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    before = os.umask(0o022)  # as on most machines
    try:
        with claimed(tmp_path_factory.mktemp("coordinator") / "results") as folder:
            return write_results(fit(folder), folder)
    finally:
        os.umask(before)


@pytest.mark.slow
def test_nobody_but_the_owner_can_read_anything_in_a_results_folder(results: Path) -> None:
    everything = [results, *results.rglob("*")]
    assert len(everything) > 10
    for one in everything:
        assert one.stat().st_mode & 0o777 == (0o700 if one.is_dir() else 0o600), one


@pytest.mark.slow
def test_nobody_but_the_owner_can_read_a_study_that_is_still_running(tmp_path: Path) -> None:
    seen: list[int] = []

    def watch(_: object) -> None:
        seen.extend(one.stat().st_mode & 0o077 for one in (tmp_path / "new").iterdir())

    fit(tmp_path / "new", watch=watch)
    assert seen and not any(seen)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_a_saved_model_is_its_owners(results: Path, tmp_path: Path) -> None:
    from unpooled.estimators import load

    folder = load(results / "model").save(tmp_path / "copy")
    for one in [folder, *folder.rglob("*")]:
        assert one.stat().st_mode & 0o077 == 0


@pytest.mark.slow
@pytest.mark.parametrize("part", ["question", "digest", "reply"])
def test_an_edited_round_is_refused_by_its_number_and_no_site_is_asked(
    results: Path, tmp_path: Path, part: str
) -> None:
    folder = tmp_path / "edited"
    folder.mkdir()
    with (results / CHECKPOINT).open("rb") as file:
        rounds = list(msgpack.Unpacker(file))
    question, digests, reply, checksum = rounds[3]
    rounds[3] = {
        "question": [question + b"x", digests, reply, checksum],
        "digest": [question, {**digests, "north": "0" * 64}, reply, checksum],
        "reply": [question, digests, reply[:-8] + bytes(8), checksum],
    }[part]
    (folder / CHECKPOINT).write_bytes(b"".join(bytes(msgpack.packb(one) or b"") for one in rounds))
    happened: list[object] = []
    with pytest.raises(ResultsError, match=rf"round 4 of {CHECKPOINT} was altered"):
        fit(folder, resume=True, watch=happened.append)
    assert not happened


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from unpooled.coordinator.lock import alone
with alone(Path({str(tmp_path)!r})):
    print("held", flush=True)
    sys.stdin.read()
"""
    held = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert held.stdout is not None and held.stdout.readline() == "held\n"
        with pytest.raises(ResultsError, match="another run in"), alone(tmp_path):
            pass
        with pytest.raises(ResultsError, match="another run in"):
            fit(tmp_path, resume=True)
        with pytest.raises(ResultsError, match="another run in"), claimed(tmp_path):
            pass
        held.send_signal(signal.SIGKILL)
        held.wait(timeout=30)
        assert (tmp_path / NAME).exists()  # the file of a run that crashed is no lock
        with claimed(tmp_path) as folder, alone(folder):  # nor is it a file in the way
            pass
        assert not list(tmp_path.iterdir())
    finally:
        held.kill()
        held.wait()
        held.stdin.close()  # type: ignore[union-attr]
        held.stdout.close()  # type: ignore[union-attr]


def test_a_lock_is_released_by_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), alone(tmp_path):
        1 / 0
    with alone(tmp_path):
        pass
