"""The engine for remote sites, over a transport that fails as it is told to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from engines.stage import approve_together, study, tables, written
from unpooled.engines.remote import ATTEMPTS, Disconnected, RemoteEngine, Unreachable
from unpooled.errors import ApprovalError, EngineError, ResultsError, SiteLost
from unpooled.protocol.envelope import open_question
from unpooled.protocol.table_messages import Describe, Described
from unpooled.site.folder import SiteFolder
from unpooled.site.gateway import Gateway
from unpooled.site.ledger import entries

STUDY = study(privacy={"aggregation": "plain"})
QUESTION = Describe(STUDY.columns)
Fault = Callable[[str, bytes], bytes]


class Fake:
    """Gateways in this process; a fault may raise, or change a reply."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self.folders, self.open = dict(folders), {}
        self.faults: list[tuple[str, Fault]] = []
        self.sent: list[dict[str, bytes]] = []

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self.folders)

    def connect(self, sites: tuple[str, ...]) -> set[str]:
        started = {name for name in sites if name not in self.open}
        self.open |= {name: Gateway(self.folders[name]) for name in started}
        return started

    def send(self, envelopes: Mapping[str, bytes]) -> dict[str, bytes | Unreachable]:
        self.sent.append(dict(envelopes))
        return {name: self._reply(name, sealed) for name, sealed in envelopes.items()}

    def _reply(self, name: str, sealed: bytes) -> bytes | Unreachable:
        reply = self.open[name].answer(sealed)
        for number, (site, fault) in enumerate(self.faults):
            if site == name:
                del self.faults[number]
                try:
                    return fault(name, reply)
                except Unreachable as error:
                    del self.open[name]
                    return error
        return reply

    def close(self) -> None:
        self.open.clear()


def dies(name: str, reply: bytes) -> bytes:
    raise Unreachable(f"{name} has died")


def lies(name: str, reply: bytes) -> bytes:
    return b"other bytes"


def disconnects(name: str, reply: bytes) -> bytes:
    raise Disconnected


@pytest.fixture
def transport(tmp_path: Path) -> Fake:
    folders = {}
    for name, source in written(tmp_path, tables()).items():
        folders[name] = SiteFolder.create(tmp_path / name, name, source).folder
    approve_together(folders.values(), STUDY)
    return Fake(folders)


def asked(transport: Fake, site: str) -> list[str]:
    """The questions that are on a site's own record."""
    return [entry.question for entry in entries(transport.folders[site] / "ledger.jsonl")]


def test_replies_and_bytes_come_in_the_order_of_the_sites(transport: Fake) -> None:
    with RemoteEngine(transport, STUDY) as engine:
        replies, traffic = engine.exchange(QUESTION)
        assert tuple(replies) == tuple(traffic) == engine.sites == transport.sites
        assert all(isinstance(reply, Described) for reply in replies.values())
        for name, envelope in transport.sent[0].items():
            assert traffic[name].down == len(envelope)
            assert open_question(envelope).round == 1
    assert not transport.open


@pytest.mark.parametrize("fault", [dies, lies])
def test_a_site_that_fails_once_is_asked_again_and_no_other_is(transport: Fake, fault: Fault) -> None:
    transport.faults = [("south", fault)]
    said: list[str] = []
    replies, _ = RemoteEngine(transport, STUDY, said.append).exchange(QUESTION)
    assert tuple(replies) == transport.sites
    assert [tuple(sent) for sent in transport.sent] == [transport.sites, ("south",)]
    assert len(said) == 1 and "south" in said[0]


@pytest.mark.parametrize(("fault", "reason"), [(dies, "south has died"), (lies, "other bytes")])
def test_a_site_that_fails_twice_is_given_up(transport: Fake, fault: Fault, reason: str) -> None:
    transport.faults = [("south", fault)] * ATTEMPTS
    engine = RemoteEngine(transport, STUDY)
    with pytest.raises(SiteLost, match=reason) as raised:
        engine.exchange(QUESTION)
    assert raised.value.site == "south"
    engine.exclude("south")
    replies, _ = engine.exchange(QUESTION)
    assert tuple(replies) == engine.sites == ("north", "east")


def test_failures_at_different_questions_do_not_add_up(transport: Fake) -> None:
    engine = RemoteEngine(transport, STUDY)
    for _ in range(3):
        transport.faults = [("south", lies)]
        engine.exchange(QUESTION)


def test_a_site_that_restarted_is_prepared_again(transport: Fake) -> None:
    engine = RemoteEngine(transport, STUDY)
    engine.exchange(QUESTION)
    del transport.open["south"]
    engine.exchange(QUESTION)
    assert asked(transport, "south") == ["describe"] * 3
    assert asked(transport, "north") == ["describe"] * 2


def test_a_site_that_dies_while_it_is_prepared_again_is_prepared_once_more(transport: Fake) -> None:
    engine = RemoteEngine(transport, STUDY)
    engine.exchange(QUESTION)
    del transport.open["south"]
    transport.faults = [("south", dies)]
    engine.exchange(QUESTION)
    assert [tuple(sent) for sent in transport.sent[1:]] == [("south",), ("south",), transport.sites]


def test_a_site_that_restarts_with_another_table_is_refused(transport: Fake, tmp_path: Path) -> None:
    engine = RemoteEngine(transport, STUDY)
    engine.exchange(QUESTION)
    del transport.open["south"]
    tables()["south"].head(100).to_parquet(tmp_path / "south.parquet")
    with pytest.raises(ApprovalError, match="a table that has changed since this study was approved"):
        engine.exchange(QUESTION)


def test_a_site_that_restarts_with_another_table_under_a_new_approval_is_refused(
    transport: Fake, tmp_path: Path
) -> None:
    """The site would answer, because its custodian has agreed; the study must not mix the two tables."""
    engine = RemoteEngine(transport, STUDY)
    engine.exchange(QUESTION)
    del transport.open["south"]
    tables()["south"].head(100).to_parquet(tmp_path / "south.parquet")
    approve_together(transport.folders.values(), STUDY)
    with pytest.raises(ResultsError, match="another table at: south"):
        engine.exchange(QUESTION)


def test_a_site_that_restarts_after_its_approval_was_withdrawn_refuses(transport: Fake) -> None:
    engine = RemoteEngine(transport, STUDY)
    engine.exchange(QUESTION)
    del transport.open["south"]
    approve_together([transport.folders["south"]], STUDY, approved=False)
    with pytest.raises(ApprovalError, match="south"):
        engine.exchange(QUESTION)


def test_a_lost_connection_is_no_sites_fault_and_is_made_again(transport: Fake) -> None:
    transport.faults = [("north", disconnects)] * 3
    engine = RemoteEngine(transport, STUDY)
    assert tuple(engine.exchange(QUESTION)[0]) == transport.sites
    transport.faults = [("north", disconnects)] * 10
    with pytest.raises(EngineError, match="6 times in round 2"):
        engine.exchange(QUESTION)


def test_a_reply_to_an_earlier_question_is_not_accepted(transport: Fake) -> None:
    old: list[bytes] = []

    def keep(_: str, reply: bytes) -> bytes:
        old.append(reply)
        return reply

    engine = RemoteEngine(transport, STUDY)
    transport.faults = [("east", keep)]
    engine.exchange(QUESTION)
    transport.faults = [("east", lambda *_: old[0])] * 2
    with pytest.raises(SiteLost, match="another question"):
        engine.exchange(QUESTION)
