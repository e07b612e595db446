"""A curious coordinator keeps all it receives: with masked sums, no site's own statistics are in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines.stage import study, tables
from unpooled.disclosure.limits import Limits
from unpooled.engines import in_process
from unpooled.estimators import of_study
from unpooled.methods.method import with_explicit_settings
from unpooled.protocol.messages import Ask, Message, Statistics
from unpooled.site.approval import Approvals
from unpooled.site.folder import APPROVALS, SiteFolder
from unpooled.study import Study

from .honest import written

pytestmark = pytest.mark.slow

METHOD = {"name": "causal_rff", "draws": 20, "confounding": "observed", "frequencies": 3}
NAMES = {"gram", "score"}
COORDINATOR = """
import sys
from pathlib import Path

from unpooled.engines.pipes import PipeTransport
from unpooled.engines.remote import RemoteEngine
from unpooled.estimators import of_study
from unpooled.report.results import CHECKPOINT, JOURNAL, write_results
from unpooled.study import Study

folder, asked = Path(sys.argv[1]), Study.model_validate_json(sys.argv[2])
received = []


class Curious(PipeTransport):
    def send(self, envelopes):
        replies = super().send(envelopes)
        received.append(replies)
        return replies


class Sites:
    def engine(self, study):
        return RemoteEngine(Curious({name: folder / name for name in sys.argv[3:]}), study)


results = folder / "results"
results.mkdir()
files = {"checkpoint": results / CHECKPOINT, "journal": results / JOURNAL}
write_results(of_study(asked).fit(asked, Sites(), **files), results)
(results / "received").write_bytes(b"".join(one for replies in received for one in replies.values()))
print("ready", flush=True)
sys.stdin.read()
"""


def plain_statistics(asked: Study, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bytes of arrays that the site 'north' sends, in a study in one process."""
    found: list[bytes] = []
    honest = in_process.answer

    def recorded(site: Any, question: Message) -> Any:
        reply = honest(site, question)
        if site.name == "north" and isinstance(question, Ask) and isinstance(reply, Statistics):
            arrays = [np.asarray(reply.summed[name]) for name in NAMES if name in reply.summed]
            found.extend(array[0].tobytes() for array in arrays)
        return reply

    monkeypatch.setattr(in_process, "answer", recorded)
    of_study(asked).fit(asked, tables(), limits=Limits())
    assert found and min(map(len, found)) >= 32
    return found


def memory(process: int) -> bytes:
    """Everything that a process holds in memory that it may write to."""
    found = []
    with open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "rb", 0) as content:
        for line in maps:
            match = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if match is None:
                continue
            start, stop = (int(end, 16) for end in match.groups())
            try:
                content.seek(start)
                found.append(content.read(stop - start))
            except (OSError, ValueError, OverflowError):  # the kernel's own
                continue
    return b"".join(found)


@pytest.mark.parametrize("aggregation", ["plain", "secure"])
def test_the_coordinators_memory_files_and_replies_have_no_sites_own_statistics(
    aggregation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = with_explicit_settings(study("curious", method=METHOD, privacy={"aggregation": aggregation}))
    for name, source in written(tmp_path, tables()).items():
        own = SiteFolder.create(tmp_path / name, name, source, rehearsal=True)
        Approvals(own.folder / APPROVALS).decide(asked, approved=True)
    question = asked.model_dump_json(exclude={"sites"})
    running = subprocess.Popen(
        [sys.executable, "-c", COORDINATOR, str(tmp_path), question, *tables()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert running.stdout is not None and running.stdout.readline() == b"ready\n"
        held = memory(running.pid)
    finally:
        running.communicate()
    files = b"".join(one.read_bytes() for one in sorted((tmp_path / "results").rglob("*")) if one.is_file())
    for pattern in plain_statistics(asked, monkeypatch):
        assert (pattern in held) == (pattern in files) == (aggregation == "plain")
