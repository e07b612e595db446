"""A study over three real site processes with mutual TLS: the same numbers, and what left each site."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from contract.cases import CASES
from engines.stage import approve, on_stage, study, tables
from unpooled.coordinator.rounds import Round
from unpooled.disclosure.limits import Limits
from unpooled.engines.nvflare.engine import JobTransport
from unpooled.engines.nvflare.rehearsal import Rehearsal
from unpooled.engines.remote import Unreachable
from unpooled.errors import ApprovalError
from unpooled.estimators import ESTIMATORS
from unpooled.protocol.key_messages import KEY_EXCHANGE
from unpooled.site.folder import APPROVALS, LEDGER
from unpooled.site.ledger import entries, verify

pytestmark = pytest.mark.slow

QUICKEST = "causal_rff, observed"


SENT: list[bytes] = []
"""Everything that sites sent, as it came out of the transport."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    patch, send = pytest.MonkeyPatch(), JobTransport.send

    def recorded(self: JobTransport, envelopes: dict[str, bytes]) -> dict[str, bytes | Unreachable]:
        answers = send(self, envelopes)
        SENT.extend(answer for answer in answers.values() if isinstance(answer, bytes))
        return answers

    patch.setattr(JobTransport, "send", recorded)
    with on_stage(tmp_path_factory.mktemp("stage"), study()) as everybody:
        yield everybody
    patch.undo()


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=[pytest.mark.thorough] * (name != QUICKEST)) for name in CASES]
)
def test_every_method_gives_the_numbers_of_one_process(stage: Rehearsal, case: str) -> None:
    method, settings = CASES[case]
    asked = study(f"all-{method}", method={"name": method, **settings})
    approve(stage, asked)
    here = ESTIMATORS[method](seed=1, **settings).fit(asked, tables(), limits=Limits())
    rounds: list[Round] = []
    there = ESTIMATORS[method](seed=1, **settings).fit(asked, stage.remote(), watch=rounds.append)
    np.testing.assert_array_equal(there.result_.site_effects, here.result_.site_effects)
    assert there.result_.sites == tuple(stage.folders)
    for name, folder in stage.folders.items():
        own = [one for one in entries(folder / LEDGER) if one.study == asked.hash]
        own = [one for one in own if one.question not in KEY_EXCHANGE]
        assert [entry.round for entry in own] == [happened.number for happened in rounds]
        assert all(
            entry.bytes < happened.traffic[name].up for entry, happened in zip(own, rounds, strict=True)
        )
        verify(folder / LEDGER)


def test_a_study_that_was_not_approved_is_not_answered(stage: Rehearsal) -> None:
    changed = study(seed=99)
    with pytest.raises(ApprovalError, match=r"(?s)site 'north'.*seed"):
        ESTIMATORS["causal_rff"](seed=99, **changed.method.settings).fit(changed, stage.remote())
    own = [entry for entry in entries(stage.folders["north"] / LEDGER) if entry.study == changed.hash]
    assert [entry.kind for entry in own] == ["Refusal"]  # which is on record too


def test_only_the_server_listens_and_only_on_this_machine(stage: Rehearsal) -> None:
    def listening(pid: int) -> list[tuple[str, int]]:
        found = []
        for one in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            found += [part.laddr for part in one.net_connections() if part.status == psutil.CONN_LISTEN]
        return [(address.ip, address.port) for address in found]

    assert ("127.0.0.1", stage.port) in listening(stage.server.process.pid)
    assert {ip for ip, _ in listening(stage.server.process.pid)} == {"127.0.0.1"}
    for site in stage.sites.values():
        assert all(ip == "127.0.0.1" for ip, _ in listening(site.process.pid))


def test_approvals_stay_at_the_site(stage: Rehearsal) -> None:
    assert all((folder / APPROVALS).stat().st_mode & 0o077 == 0 for folder in stage.folders.values())


def test_a_canary_in_every_row_is_in_no_byte_that_left_and_in_no_log(stage: Rehearsal) -> None:
    """Beside the planted one, every value of a column is its own canary, as text and as a number's bytes."""
    ESTIMATORS["causal_rff"](seed=1, **study().method.settings).fit(study(), stage.remote())
    values = [value for table in tables().values() for value in table["a"]]
    canaries = [
        b"canary-",
        *(repr(value).encode() for value in values),
        *(struct.pack("<d", value) for value in values),
    ]
    root = Path(stage.kits.coordinator).parents[1]
    kept = [path.read_bytes() for path in root.rglob("*") if path.is_file()]
    assert len(SENT) > 12
    for content in (*SENT, *kept):
        assert not any(canary in content for canary in canaries)
