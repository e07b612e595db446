"""The way to the sites while it stands: a job of NVIDIA FLARE, and a socket that its relay calls."""

from __future__ import annotations

import socket
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from nvflare.apis.job_def import JobMetaKey

from unpooled.engines.nvflare.job import write_job
from unpooled.engines.nvflare.session import connected, session
from unpooled.engines.nvflare.wire import Line, Request, Response
from unpooled.errors import EngineError, SiteLost

RETURNING = 60.0
"""Seconds that a site which is not there may take to come."""
BEGINNING = 120.0
"""Seconds a job may take from being handed in to its first call."""
GRACE = 30.0


class Ended(Exception):
    """The job is over, though the study is not."""


class Passage:
    """Opened when it is needed, left when it is of no more use, and opened again."""

    def __init__(self, coordinator: Path, name: str) -> None:
        self._coordinator, self._name = coordinator, name
        self._job, self._line, self._held = "", None, ExitStack()

    def open_to(self, sites: tuple[str, ...]) -> bool:
        """Stand open to these sites; whether it did already."""
        if self._line is not None:
            return True
        self._await(sites)
        folder = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="unpooled-")))
        listening = self._held.enter_context(socket.socket(socket.AF_UNIX))
        address = folder / "line"  # in a folder that only this user may enter
        listening.bind(str(address))
        listening.listen(1)
        job = write_job(folder, "study", sites, str(address))
        with session(self._coordinator) as visit:
            self._job = visit.submit_job(str(job))
        self._line = self._held.enter_context(Line(self._called(listening)))
        return False

    def put(self, questions: dict[str, bytes], seconds: float) -> Response:
        """What the sites answer within so many seconds."""
        assert self._line is not None
        try:
            self._line.send(Request(questions, seconds))
            return Response(*self._line.receive(seconds + GRACE))  # type: ignore[arg-type]
        except (EOFError, TimeoutError):
            self.leave()
            raise Ended from None

    def leave(self) -> None:
        """End the job. It may be over, and so may the server be."""
        self._held.close()
        if self._line is not None or self._job:
            with suppress(Exception), session(self._coordinator) as visit:
                visit.abort_job(self._job)
        self._line, self._job = None, ""

    def _await(self, sites: tuple[str, ...]) -> None:
        """Until all of them are connected."""
        until = time.monotonic() + RETURNING
        while absent := [name for name in sites if name not in connected(self._coordinator)]:
            if time.monotonic() > until:
                raise SiteLost(absent[0], f"not connected for {RETURNING:.0f} s")
            time.sleep(1.0)

    def _called(self, listening: socket.socket) -> socket.socket:
        """The relay's call; a job that ends without calling never will."""
        listening.settimeout(1.0)
        until = time.monotonic() + BEGINNING
        while time.monotonic() < until:
            with suppress(TimeoutError):
                return listening.accept()[0]
            if (status := self._status()).startswith(("FINISHED", "FAILED", "ABORTED")):
                raise _unbegun(f"its job ended with {status}")
        raise _unbegun(f"its job did not begin within {BEGINNING:.0f} s")

    def _status(self) -> str:
        with session(self._coordinator) as visit:
            return str(visit.get_job_meta(self._job).get(JobMetaKey.STATUS.value, ""))


def _unbegun(found: str) -> EngineError:
    return EngineError(
        "the study must reach the sites",
        found=found,
        remedy="look at the coordinator's log, and at the sites'; then go on with --resume",
    )
