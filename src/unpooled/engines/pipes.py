"""Sites as separate processes on this machine, one socket pair each.

A site process reads its own table from its site folder and answers through the site's `Gateway`, so approval,
limits and ledger apply as they do between organisations. Only sealed questions and replies pass through the
socket.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from unpooled.engines.channel import Channel
from unpooled.engines.remote import RemoteEngine, Unreachable
from unpooled.site.gateway import Gateway
from unpooled.study import Study

LOG = "process.log"
"""In the site's folder: what the process wrote to its standard output and error."""


@dataclass(frozen=True)
class SiteProcesses:
    """Site folders on this machine, one process each: give it to `fit` in place of tables.

    `timeout` is the number of seconds that a site may take to answer one question.
    """

    folders: Mapping[str, Path]
    timeout: float = 600.0

    def engine(self, study: Study) -> RemoteEngine:
        """An engine to be used in a `with` block, at the end of which the processes end."""
        return RemoteEngine(PipeTransport(self.folders, self.timeout), study)


@dataclass(frozen=True)
class _SiteProcess:
    process: subprocess.Popen[bytes]
    channel: Channel

    def end(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.wait()


class PipeTransport:
    """See `unpooled.engines.remote.Transport`. A process starts when it is first needed."""

    def __init__(self, folders: Mapping[str, Path], timeout: float = 600.0) -> None:
        self._folders, self._timeout = dict(folders), timeout
        self._running: dict[str, _SiteProcess] = {}

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self._folders)

    def connect(self, sites: tuple[str, ...]) -> set[str]:
        started = {name for name in sites if name not in self._running}
        for name in started:
            self._running[name] = _start(self._folders[name])
        return started

    def send(self, envelopes: Mapping[str, bytes]) -> dict[str, bytes | Unreachable]:
        until = time.monotonic() + self._timeout
        for name, envelope in envelopes.items():
            with suppress(EOFError, TimeoutError):  # receiving will fail as well, and give the reason
                self._running[name].channel.send(envelope, self._timeout)
        return {name: self._receive(name, until) for name in envelopes}

    def _receive(self, name: str, until: float) -> bytes | Unreachable:
        try:
            return self._running[name].channel.receive(max(until - time.monotonic(), 0.01))
        except TimeoutError:
            reason = f"no answer within {self._timeout:g} s"
        except EOFError:
            reason = f"its process has ended; see {LOG} in the site's folder"
        self._running.pop(name).end()
        return Unreachable(reason)

    def close(self) -> None:
        while self._running:
            self._running.popitem()[1].end()


def _start(folder: Path) -> _SiteProcess:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", __name__, str(folder)]
    log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with theirs, os.fdopen(log, "ab") as output:
        process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=output, stderr=output)
    return _SiteProcess(process, Channel(ours))


def serve(folder: Path, connected: socket.socket) -> None:
    """Answer questions beside a site folder until the other end closes."""
    gateway = Gateway(folder)
    with Channel(connected) as channel, suppress(EOFError):
        while True:
            channel.send(gateway.answer(channel.receive()))


if __name__ == "__main__":
    serve(Path(sys.argv[1]), socket.socket(fileno=sys.stdin.fileno()))
