"""What goes wrong between organisations, with real processes: killed, stuck, restarted, lying."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from engines.stage import approve, on_stage, study, tables
from unpooled.coordinator.rounds import Round
from unpooled.disclosure.limits import Limits
from unpooled.engines.nvflare.admission import KIT
from unpooled.engines.nvflare.processes import start_server, start_site, wait_until_listening
from unpooled.engines.nvflare.rehearsal import Rehearsal
from unpooled.errors import EngineError, SiteLost, UnpooledError
from unpooled.estimators import ESTIMATORS, Estimator
from unpooled.site.ledger import verify
from unpooled.study import Study

pytestmark = [pytest.mark.slow]

PATIENCE = 30.0


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(Path(__file__).parent / "faulty"), prepend=os.pathsep)
    with on_stage(tmp_path_factory.mktemp("stage"), study()) as everybody:
        yield everybody
    patch.undo()


@pytest.fixture(scope="module")
def here() -> Estimator:
    return estimator(study()).fit(study(), tables(), limits=Limits())


def estimator(asked: Study) -> Estimator:
    return ESTIMATORS["causal_rff"](seed=asked.seed, **asked.method.settings)


def there(
    stage: Rehearsal, asked: Study, *, at_fifth: Callable[[], None] = lambda: None, **more
) -> Estimator:
    """A fit over the sites; something happens once the fourth round is over."""

    def watch(happened: Round) -> None:
        if happened.number == 4:
            at_fifth()

    approve(stage, asked)
    return estimator(asked).fit(asked, stage.remote(timeout=PATIENCE), watch=watch, **more)


def job_of(stage: Rehearsal, site: str) -> psutil.Process:
    (job,) = psutil.Process(stage.sites[site].process.pid).children()
    return job


def restart(stage: Rehearsal, site: str) -> None:
    stage.sites[site].stop()
    stage.sites[site] = start_site(stage.folders[site] / KIT)


def test_a_job_that_ends_for_all_is_put_again(stage: Rehearsal, here: Estimator) -> None:
    model = there(stage, study(), at_fifth=lambda: job_of(stage, "south").kill())
    np.testing.assert_array_equal(model.result_.site_effects, here.result_.site_effects)


@pytest.mark.thorough
def test_a_site_that_hangs_gets_another_chance(stage: Rehearsal, here: Estimator) -> None:
    model = there(stage, study(), at_fifth=lambda: job_of(stage, "south").send_signal(signal.SIGSTOP))
    np.testing.assert_array_equal(model.result_.site_effects, here.result_.site_effects)


@pytest.mark.thorough
def test_a_lost_site_stops_the_study_and_once_back_it_goes_on(
    stage: Rehearsal, here: Estimator, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint.msgpack"
    with pytest.raises(SiteLost) as raised:
        there(stage, study(), at_fifth=stage.sites["south"].stop, checkpoint=checkpoint)
    assert raised.value.site == "south"
    restart(stage, "south")
    model = there(stage, study(), checkpoint=checkpoint, resume=True)
    np.testing.assert_array_equal(model.result_.site_effects, here.result_.site_effects)


@pytest.mark.thorough
def test_with_min_sites_a_study_begins_anew_without_the_lost_one(stage: Rehearsal, tmp_path: Path) -> None:
    asked = study("fewer", min_sites=2, privacy={"aggregation": "plain"})  # two cannot mask
    try:
        model = there(
            stage, asked, at_fifth=stage.sites["south"].stop, checkpoint=tmp_path / "checkpoint.msgpack"
        )
    finally:
        restart(stage, "south")
    assert model.result_.sites == ("north", "east")
    assert list(model.result_.lost_sites) == ["south"]
    two = {name: table for name, table in tables().items() if name != "south"}
    alone = estimator(asked).fit(asked, two, limits=Limits())
    np.testing.assert_array_equal(model.ate_draws(), alone.ate_draws())


@pytest.mark.parametrize(
    "fault", [*(pytest.param(one, marks=pytest.mark.thorough) for one in ("shape", "huge", "replay")), "nan"]
)
def test_a_site_whose_answers_are_wrong_is_named(stage: Rehearsal, fault: str) -> None:
    lie = stage.folders["south"] / "fault"
    lie.write_text(fault)
    try:
        with pytest.raises(SiteLost) as raised:
            there(stage, study())
    finally:
        lie.unlink()
    assert raised.value.site == "south"


@pytest.mark.thorough
def test_where_the_disk_is_full_no_reply_leaves(stage: Rehearsal, here: Estimator) -> None:
    there(stage, study())  # so that there is a ledger
    ledger, fault = stage.folders["south"] / "ledger.jsonl", stage.folders["south"] / "fault"
    before = ledger.read_bytes()
    fault.write_text("full")
    try:
        with pytest.raises(UnpooledError, match="south") as raised:
            there(stage, study())
    finally:
        fault.unlink()
    assert "read and write its files" in str(raised.value)
    assert ledger.read_bytes() == before
    assert verify(ledger).lines > 0
    model = there(stage, study())  # and once there is room again, it answers
    np.testing.assert_array_equal(model.result_.site_effects, here.result_.site_effects)


@pytest.mark.thorough
def test_a_coordinator_that_was_killed_goes_on_from_its_folder(
    stage: Rehearsal, here: Estimator, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint.msgpack"
    with pytest.raises(EngineError, match="coordinator"):
        there(stage, study(), at_fifth=lambda: stage.server.stop(0.0), checkpoint=checkpoint)
    again = start_server(stage.kits.server)
    try:
        wait_until_listening("localhost", stage.port, again)
        back = replace(stage, server=again)
        model = there(back, study(), checkpoint=checkpoint, resume=True)
    finally:
        again.stop()
    np.testing.assert_array_equal(model.result_.site_effects, here.result_.site_effects)
