"""People at several sites are found through the gateways: restarts, lost sites, and what is refused."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attacks.honest import rewrite
from engines.stage import approve_together
from unpooled.cli.audit import opened
from unpooled.coordinator.audit import audit
from unpooled.coordinator.checkpoint import read_rounds
from unpooled.coordinator.duplicates import leave_out_copies
from unpooled.coordinator.rounds import Round, run
from unpooled.disclosure.limits import Limits
from unpooled.engines.pipes import PipeTransport, SiteProcesses
from unpooled.engines.remote import RemoteEngine, Unreachable
from unpooled.errors import ResultsError, UnpooledError
from unpooled.estimators import AIPW
from unpooled.methods.method import with_explicit_settings
from unpooled.protocol.codec import decode, encode
from unpooled.protocol.duplicate_messages import BlindKeys, CountKeys, FinishKeys, LeaveOut, RaiseKeys
from unpooled.protocol.envelope import Asked, open_reply
from unpooled.protocol.messages import Question, Refusal
from unpooled.protocol.table_messages import Describe
from unpooled.report.results import CHECKPOINT, JOURNAL, RESULT, write_results
from unpooled.site.folder import SiteFolder
from unpooled.site.gateway import Gateway
from unpooled.site.ledger import verify
from unpooled.study import Source, Study

METHOD = {"name": "aipw", "draws": 40, "folds": 1}
NAMES = ("north", "south", "east")


def study(**more: Any) -> Study:
    roles = {"treatment": "w", "outcome": "y", "covariates": ["x"], "id": "number", "method": METHOD}
    return with_explicit_settings(Study(**{**roles, "name": "counted once", "seed": 2, **more}))


def tables(rows: int = 160, shared: int = 30) -> dict[str, pd.DataFrame]:
    rng, step = np.random.default_rng(0), rows - shared
    everybody = pd.DataFrame({"number": np.arange(3 * rows) + 10**8, "x": rng.normal(size=3 * rows)})
    everybody["w"] = rng.permutation(np.arange(3 * rows) % 2)
    everybody["y"] = everybody["x"] + everybody["w"] + rng.normal(size=3 * rows)
    return {name: everybody[i * step : i * step + rows] for i, name in enumerate(NAMES)}


def folders(root: Path, *studies: Study, **more: Any) -> dict[str, Path]:
    made = {}
    for name, table in tables().items():
        table.to_parquet(root / f"{name}.parquet")
        own = SiteFolder.create(root / name, name, Source(path=str(root / f"{name}.parquet")), **more)
        made[name] = own.folder
    approve_together(made.values(), *(studies or (study(),)))
    return made


class Here:
    """A transport to gateways in this process; one of them restarts before or fails at some question."""

    def __init__(self, where: dict[str, Path]) -> None:
        self.where, self.open = where, dict[str, Gateway]()
        self.asked = 0
        self.restarts: int | None = None
        self.fails: str | None = None

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self.where)

    def connect(self, sites: tuple[str, ...]) -> set[str]:
        started = {name for name in sites if name not in self.open}
        self.open |= {name: Gateway(self.where[name]) for name in started}
        return started

    def send(self, envelopes: Any) -> dict[str, bytes | Unreachable]:
        self.asked += 1
        found: dict[str, bytes | Unreachable] = {}
        for name, sealed in envelopes.items():
            if name == self.fails:
                found[name] = Unreachable("gone")
                continue
            found[name] = self.open[name].answer(sealed)
            if self.asked == self.restarts and name == "south":
                del self.open[name]
                found[name] = Unreachable("restarted after it had answered")
        return found

    def close(self) -> None:
        self.open.clear()


def fit(transport: Here, asked: Study, **more: Any) -> AIPW:
    class Sites:
        def engine(self, study: Study) -> RemoteEngine:
            return RemoteEngine(transport, study)

    return AIPW(seed=asked.seed, **asked.method.settings).fit(asked, Sites(), **more)  # type: ignore[arg-type]


def kept(where: dict[str, Path]) -> dict[str, Any]:
    """The private files of what was left out."""
    return {
        name: json.loads(path.read_text())
        for name, folder in where.items()
        for path in (folder / "duplicates").glob("*.json")
    }


def remaining(where: dict[str, Path]) -> pd.DataFrame:
    return pd.concat(
        table.reset_index(drop=True).drop(index=kept(where)[name]["left_out"])
        for name, table in tables().items()
    )


@pytest.mark.parametrize("aggregation", ["plain", "secure"])
def test_a_study_over_gateways_counts_everybody_once(tmp_path: Path, aggregation: str) -> None:
    asked = study(privacy={"aggregation": aggregation})
    where = folders(tmp_path, asked)
    model = fit(Here(where), asked)
    assert sum(model.result_.counts) == 420
    assert sorted(remaining(where)["number"]) == [10**8 + one for one in range(420)]
    for name, folder in where.items():
        (path,) = (folder / "duplicates").glob("*.json")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert kept(where)[name]["seed"] == "", "secrets are deleted"
        assert "people are counted elsewhere" in (folder / "duplicates.log").read_text()
        verify(folder / "ledger.jsonl")


@pytest.mark.slow
def test_rehearsed_sites_give_the_numbers_of_one_process(tmp_path: Path) -> None:
    where = folders(tmp_path, rehearsal=True)
    here = AIPW(seed=2, **{k: v for k, v in METHOD.items() if k != "name"}).fit(
        study(), tables(), limits=Limits()
    )
    remote = AIPW(seed=2, **{k: v for k, v in METHOD.items() if k != "name"}).fit(
        study(), SiteProcesses(where)
    )
    np.testing.assert_allclose(remote.ate_draws(), here.ate_draws(), rtol=1e-5)
    assert remote.result_.counts == here.result_.counts


@pytest.mark.parametrize("aggregation", ["plain", "secure"])
@pytest.mark.parametrize("at", [2, 4, 6, 8, 9])
def test_a_site_that_restarts_answers_as_before(tmp_path: Path, at: int, aggregation: str) -> None:
    asked = study(privacy={"aggregation": aggregation})
    where = folders(tmp_path, asked)
    transport = Here(where)
    transport.restarts = at
    model = fit(transport, asked)
    assert sum(model.result_.counts) == 420
    assert sorted(remaining(where)["number"]) == [10**8 + one for one in range(420)]


def test_a_study_resumes_when_all_sites_have_restarted(tmp_path: Path) -> None:
    where = folders(tmp_path)

    class Stop(Exception):
        pass

    def until(number: int) -> Any:
        def watch(happened: Round) -> None:
            if happened.number == number:
                raise Stop

        return watch

    for number in (1, 3, 6, 9):
        with pytest.raises(Stop):
            fit(Here(where), study(), checkpoint=tmp_path / "rounds", resume=number > 1, watch=until(number))
    model = fit(Here(where), study(), checkpoint=tmp_path / "rounds", resume=True)
    assert sum(model.result_.counts) == 420


def test_a_whole_study_can_be_asked_again(tmp_path: Path) -> None:
    """And the search alone, as `unpooled dedupe` does; recorded replies need no secrets."""
    where = folders(tmp_path)
    alone = run(leave_out_copies(study()), RemoteEngine(Here(where), study()))
    first, second = fit(Here(where), study()), fit(Here(where), study())
    assert alone is not None and sum(one.remaining for one in alone.sites.values()) == 420
    np.testing.assert_array_equal(first.ate_draws(), second.ate_draws())


def test_rows_left_out_because_of_a_lost_site_come_back(tmp_path: Path) -> None:
    asked = study(min_sites=2, privacy={"aggregation": "plain"})
    where = folders(tmp_path, asked)
    transport = Here(where)

    def watch(happened: Round) -> None:
        if happened.number == 9:
            transport.fails = "north"

    model = fit(transport, asked, watch=watch)
    assert model.result_.sites == ("south", "east")
    assert sum(model.result_.counts) == 290, "nobody is left out because of the lost site"


def test_keyed_hashes_need_the_same_key_at_all_sites(tmp_path: Path) -> None:
    asked = study(privacy={"duplicates": "keyed hash"})
    where = folders(tmp_path, asked)
    with pytest.raises(UnpooledError):
        fit(Here(where), asked)
    for folder in where.values():
        (folder / "duplicates.key").write_text("k" * 40 + "\n")
    model = fit(Here(where), asked)
    assert sum(model.result_.counts) == 420
    assert any("whoever has the sites' key" in note for note in model.result_.notes)


def test_processes_find_people_too(tmp_path: Path) -> None:
    with RemoteEngine(PipeTransport(folders(tmp_path)), study()) as engine:
        found = run(leave_out_copies(study()), engine)
    assert found is not None and found.overlaps == {("north", "south"): 30, ("south", "east"): 30}


ASKED_ALONE = study(privacy={"aggregation": "plain"})
"""A study in which one site may be asked without the others."""


class Door:
    """Asks one gateway anything."""

    def __init__(self, folder: Path, asked: Study) -> None:
        self.gateway, self.study, self.name, self.round = Gateway(folder), asked, folder.name, 0

    def ask(self, question: Question) -> Any:
        self.round += 1
        asked = self.study.model_dump_json(exclude={"sites"})
        sealed = Asked(asked, b"run", self.round, encode(question)).seal()
        return decode(open_reply(self.gateway.answer(sealed), sealed, self.name).reply)


def test_a_site_searches_once_with_the_lists_that_were_announced(tmp_path: Path) -> None:
    door = Door(folders(tmp_path, ASKED_ALONE)["south"], ASKED_ALONE)
    assert isinstance(door.ask(Describe(ASKED_ALONE.columns)), Refusal), "before people are counted once"
    size = door.ask(CountKeys(ASKED_ALONE.columns)).size
    sizes = {"north": size, "south": size, "east": size}
    assert isinstance(door.ask(BlindKeys({**sizes, "south": size + 8})), Refusal)
    points = door.ask(BlindKeys(sizes)).points
    assert isinstance(door.ask(BlindKeys({**sizes, "north": size + 8})), Refusal), "a second search"
    asks = {
        "of another length": RaiseKeys(sizes, 1, {"north": points[1:]}),
        "of another site": RaiseKeys(sizes, 1, {"east": points}),
        "its own": RaiseKeys(sizes, 0, {"south": points}),
        "at a third hop": RaiseKeys(sizes, 3, {"south": points}),
        "of no points": RaiseKeys(sizes, 1, {"north": np.zeros_like(points)}),
        "of other numbers": RaiseKeys(sizes, 1, {"north": points.astype(np.int32)}),
        "of two sites": RaiseKeys(sizes, 1, {"north": points, "east": points}),
    }
    for what, question in asks.items():
        assert isinstance(door.ask(question), Refusal), what


def test_a_site_raises_each_list_once(tmp_path: Path) -> None:
    door = Door(folders(tmp_path, ASKED_ALONE)["south"], ASKED_ALONE)
    size = door.ask(CountKeys(ASKED_ALONE.columns)).size
    sizes = {"north": size, "south": size, "east": size}
    points = door.ask(BlindKeys(sizes)).points
    first = RaiseKeys(sizes, 1, {"north": points})
    raised = door.ask(first)
    np.testing.assert_array_equal(door.ask(first).points, raised.points)
    assert isinstance(door.ask(RaiseKeys(sizes, 1, {"north": points[::-1].copy()})), Refusal)
    assert not isinstance(door.ask(RaiseKeys(sizes, 2, {"east": points[::-1].copy()})), Refusal)
    assert not isinstance(door.ask(FinishKeys(sizes, {"south": points})), Refusal)
    assert isinstance(door.ask(FinishKeys(sizes, {"south": points[::-1].copy()})), Refusal)
    for places in (np.array([0, 0]), np.array([size]), np.array([-1]), np.array([0.0]), np.array([[0]])):
        assert isinstance(door.ask(LeaveOut(sizes, {"south": places})), Refusal)
    out = LeaveOut(sizes, {"south": np.arange(40)})
    rows = door.ask(out).rows
    assert rows < 160 and door.ask(out).rows == rows
    assert door.ask(Describe(ASKED_ALONE.columns)).description.rows == rows
    assert isinstance(door.ask(LeaveOut(sizes, {"south": np.arange(41)})), Refusal), "a second time"
    assert isinstance(door.ask(RaiseKeys(sizes, 2, {"east": points})), Refusal), "after the end"
    door.gateway = Gateway(tmp_path / "south")
    assert door.ask(replace(Describe(ASKED_ALONE.columns))).description.rows == rows, "after a restart"


def test_fewer_people_than_a_cell_are_not_left_out(tmp_path: Path) -> None:
    """The sums with and without them would reveal them."""
    door = Door(folders(tmp_path, ASKED_ALONE)["south"], ASKED_ALONE)
    size = door.ask(CountKeys(ASKED_ALONE.columns)).size
    sizes = {"south": size, "east": size}
    points = door.ask(BlindKeys(sizes)).points
    door.ask(FinishKeys(sizes, {"south": points}))
    assert door.ask(LeaveOut(sizes, {"south": np.arange(4)})).rows == 160


def test_a_new_approval_searches_anew(tmp_path: Path) -> None:
    where = folders(tmp_path)
    fit(Here(where), study())
    approve_together(where.values(), study())
    assert sum(fit(Here(where), study()).result_.counts) == 420


def test_damaged_records_are_refused(tmp_path: Path) -> None:
    where = folders(tmp_path)
    fit(Here(where), study())
    (path,) = (where["south"] / "duplicates").glob("*.json")
    path.write_text("{")
    with pytest.raises(UnpooledError, match="south"):
        fit(Here(where), study(), checkpoint=None)


@pytest.mark.slow
def test_an_audit_proves_that_the_lists_were_passed_on_unchanged(tmp_path: Path) -> None:
    where, results = folders(tmp_path), tmp_path / "results"
    model = fit(Here(where), study(), checkpoint=results / CHECKPOINT, journal=results / JOURNAL)
    write_results(model, results)
    ledgers = [opened(folder, None) for folder in where.values()]
    found = audit(results, ledgers, checkpoint=CHECKPOINT, journal=JOURNAL, result=RESULT)
    assert {one.site: one.refused for one in found.ledgers} == dict.fromkeys(NAMES, ())
    rounds = read_rounds(results / CHECKPOINT)
    asked = decode(rounds[2].question)
    assert isinstance(asked, RaiseKeys)
    lists = {**asked.lists, "east": asked.lists["east"][::-1].copy()}  # as if points had been replaced
    rounds[2] = rounds[2]._replace(question=encode(replace(asked, lists=lists)))
    rewrite(results / CHECKPOINT, rounds)
    with pytest.raises(ResultsError, match="an altered question in round 3"):
        audit(results, ledgers, checkpoint=CHECKPOINT, journal=JOURNAL, result=RESULT)
