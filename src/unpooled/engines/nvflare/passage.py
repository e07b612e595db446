"""The way to the sites while it stands: a job of NVIDIA FLARE, and a socket that its relay calls."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from nvflare.apis.job_def import JobMetaKey

from unpooled.engines.nvflare.job import write_job
from unpooled.engines.nvflare.session import Session, connected, session
from unpooled.engines.nvflare.wire import Line, Request, Response
from unpooled.errors import EngineError, SiteLost

BEGINNING = 120.0
"""Seconds a job may take from being handed in to its first call."""
GRACE, LOOK = 30.0, 0.5
OVER = ("FINISHED", "FAILED", "ABORTED")
"""How the status of a job begins that is no more."""


class Ended(Exception):
    """The job is over, though the study is not."""


class Passage:
    """Opened when it is needed, left when it is of no more use, and opened again."""

    def __init__(self, coordinator: Path, seconds: float, tell: Callable[[str], None]) -> None:
        self._coordinator, self.seconds, self._tell = coordinator, seconds, tell
        self._job, self._line, self._held = "", None, ExitStack()

    def open_to(self, sites: tuple[str, ...]) -> bool:
        """Stand open to these sites; whether it did already."""
        if self._line is not None:
            return True
        try:
            with session(self._coordinator) as visit:
                self._await(visit, sites)
                self._open(visit, sites)
        except BaseException:
            self.leave(stuck=True)
            raise
        return False

    def put(self, questions: dict[str, bytes]) -> Response:
        """What the sites answer in time."""
        assert self._line is not None
        try:
            self._line.send(Request(questions, self.seconds))
            return Response(*self._line.receive(self.seconds + GRACE))  # type: ignore[arg-type]
        except (EOFError, TimeoutError) as error:
            self.leave(stuck=isinstance(error, TimeoutError))
            raise Ended from None

    def leave(self, *, stuck: bool = False) -> None:
        """Hang up, which ends the job; one that is stuck has to be told."""
        self._held.close()
        if stuck and self._job:
            with suppress(Exception), session(self._coordinator) as visit:  # the server may be gone as well
                visit.abort_job(self._job)
        self._line, self._job = None, ""

    def _open(self, visit: Session, sites: tuple[str, ...]) -> None:
        folder = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="unpooled-")))
        listening = self._held.enter_context(socket.socket(socket.AF_UNIX))
        address = folder / "line"  # in a folder that only this user may enter
        listening.bind(str(address))
        listening.listen(1)
        self._tell(f"calling {', '.join(sites)}")
        self._job = visit.submit_job(str(write_job(folder, "study", sites, str(address))))
        self._line = self._held.enter_context(Line(self._called(visit, listening)))

    def _await(self, visit: Session, sites: tuple[str, ...]) -> None:
        """Until all of them are connected."""
        until, told = time.monotonic() + self.seconds, False
        while absent := [name for name in sites if name not in connected(visit)]:
            if not told:
                self._tell(f"waiting for {', '.join(absent)}, at most {self.seconds:g} s")
            told = True
            if time.monotonic() > until:
                raise SiteLost(absent[0], f"not connected for {self.seconds:g} s")
            time.sleep(LOOK)

    def _called(self, visit: Session, listening: socket.socket) -> socket.socket:
        """The relay's call; a job that ends without calling never will."""
        listening.settimeout(LOOK)
        until = time.monotonic() + BEGINNING
        while time.monotonic() < until:
            with suppress(TimeoutError):
                return listening.accept()[0]
            status = str(visit.get_job_meta(self._job).get(JobMetaKey.STATUS.value, ""))
            if status.startswith(OVER):
                raise _unbegun(f"its job ended with {status}")
        raise _unbegun(f"its job did not begin within {BEGINNING:.0f} s")


def _unbegun(found: str) -> EngineError:
    return EngineError(
        "the study must reach the sites",
        found=found,
        remedy="look at the coordinator's log, and at the sites'; then go on with --resume",
    )
