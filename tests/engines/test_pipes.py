"""Sites as processes of this machine: the numbers of one process, also when a site dies, hangs or is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engines.stage import approve_together, study, tables, written
from unpooled.coordinator.rounds import Round
from unpooled.disclosure.limits import Limits
from unpooled.engines.pipes import PipeTransport, SiteProcesses
from unpooled.engines.remote import RemoteEngine, Unreachable
from unpooled.errors import ApprovalError, SiteLost
from unpooled.estimators import ESTIMATORS, Estimator
from unpooled.protocol.key_messages import KEY_EXCHANGE
from unpooled.protocol.table_messages import Describe
from unpooled.site.folder import SiteFolder
from unpooled.site.ledger import entries, verify
from unpooled.study import Study

pytestmark = pytest.mark.slow


class Held(PipeTransport):
    """Keeps its processes from one study to the next, and gives up soon on a site that it knows to hang."""

    hangs: str | None = None

    def close(self) -> None:
        pass

    def _receive(self, name: str, until: float) -> bytes | Unreachable:
        # All others have their full time: on a busy machine a working site may take long.
        if name == self.hangs:
            self.hangs, until = None, time.monotonic() + 1.0
        return super()._receive(name, until)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("sites")
    made = {
        name: SiteFolder.create(root / name, name, source, rehearsal=True)
        for name, source in written(root, tables()).items()
    }
    return {name: own.folder for name, own in made.items()}


@pytest.fixture(scope="module")
def transport(folders: dict[str, Path]) -> Iterator[Held]:
    held = Held(folders, timeout=250.0)
    yield held
    PipeTransport.close(held)


class Sites:
    """What `fit` is given in place of tables."""

    def __init__(self, transport: PipeTransport) -> None:
        self.transport = transport

    def engine(self, study: Study) -> RemoteEngine:
        return RemoteEngine(self.transport, study)


def approve(folders: dict[str, Path], asked: Study) -> None:
    approve_together(folders.values(), asked)


def fit(asked: Study, sites: object, **more: object) -> Estimator:
    model = ESTIMATORS["causal_rff"](seed=asked.seed, **asked.method.settings)
    return model.fit(asked, sites, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def here() -> Estimator:
    return fit(study(), tables(), limits=Limits())


def process_of(transport: PipeTransport, site: str) -> subprocess.Popen[bytes]:
    return transport._running[site].process


def test_a_study_gives_the_numbers_of_one_process_and_is_on_record(
    transport: Held, folders: dict[str, Path], here: Estimator
) -> None:
    approve(folders, study())
    rounds: list[Round] = []
    model = fit(study(), Sites(transport), watch=rounds.append)
    np.testing.assert_array_equal(model.result_.site_effects, here.result_.site_effects)
    for name, folder in folders.items():
        own = [one for one in entries(folder / "ledger.jsonl") if one.question not in KEY_EXCHANGE]
        assert [entry.round for entry in own] == [happened.number for happened in rounds]
        assert all(
            entry.bytes < happened.traffic[name].up for entry, happened in zip(own, rounds, strict=True)
        )
        verify(folder / "ledger.jsonl")


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_site_that_dies_or_hangs_is_started_and_prepared_again(
    transport: Held,
    folders: dict[str, Path],
    here: Estimator,
    fault: signal.Signals,
) -> None:
    approve(folders, study())
    before = {}

    def watch(happened: Round) -> None:
        if happened.number == 4:
            before.update({name: process_of(transport, name) for name in folders})
            transport.hangs = "south"
            before["south"].send_signal(fault)

    model = fit(study(), Sites(transport), watch=watch)
    np.testing.assert_array_equal(model.result_.site_effects, here.result_.site_effects)
    started = [name for name in folders if process_of(transport, name) is not before[name]]
    assert started == ["south"]


def test_with_min_sites_a_study_starts_again_without_a_lost_site(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    asked = study("fewer", min_sites=2, privacy={"aggregation": "plain"})  # two cannot mask
    lost = {**folders, "south": tmp_path}  # which is no site's folder
    approve(folders, asked)
    model = fit(asked, SiteProcesses(lost))
    assert model.result_.sites == ("north", "east")
    assert list(model.result_.lost_sites) == ["south"]
    two = {name: table for name, table in tables().items() if name != "south"}
    np.testing.assert_array_equal(model.ate_draws(), fit(asked, two, limits=Limits()).ate_draws())
    with pytest.raises(SiteLost, match=r"process\.log"):
        fit(study(), SiteProcesses({"south": tmp_path}))


def test_a_study_that_was_not_approved_is_not_answered(transport: Held) -> None:
    with pytest.raises(ApprovalError, match="site 'north'"):
        fit(study(seed=77), Sites(transport))


def test_a_site_process_ends_when_its_parent_is_killed(folders: dict[str, Path]) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folders["north"])], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    until = time.monotonic() + 30
    while _runs(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _runs(pid)


PARENT = """
import sys, time
from pathlib import Path
from unpooled.engines.pipes import PipeTransport
transport = PipeTransport({"north": Path(sys.argv[1])})
transport.connect(("north",))
print(transport._running["north"].process.pid, flush=True)
time.sleep(60)
"""


def _runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_leaving_the_with_block_ends_the_processes(folders: dict[str, Path]) -> None:
    approve(folders, study())
    with SiteProcesses({"north": folders["north"]}).engine(study()) as engine:
        engine.exchange(Describe(study().columns.model_dump(mode="json")))
        process = process_of(engine._transport, "north")  # type: ignore[arg-type]
        assert process.poll() is None
    assert process.poll() is not None
