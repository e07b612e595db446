"""The sites of a consortium as an engine: one job of NVIDIA FLARE carries a whole study.

A job can end for reasons that are not the study's: a process killed at one site ends it for all. The
transport then submits another job, and the engine prepares the sites and asks its question again.
"""

from __future__ import annotations

import io
import logging
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path

from nvflare.apis.job_def import JobMetaKey
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from unpooled.engines.channel import Channel
from unpooled.engines.nvflare.configuration import write_job
from unpooled.engines.nvflare.consortium import LEAD
from unpooled.engines.nvflare.controller import Request, decode_response
from unpooled.engines.nvflare.kits import read_own_consortium
from unpooled.engines.remote import Disconnected, Notify, RemoteEngine, Unreachable, silent
from unpooled.errors import EngineError, SiteLost
from unpooled.study import Study

CONNECTED_WITHIN = 12.0
"""Seconds since a site's last heartbeat after which it counts as disconnected."""
JOB_START = 120.0
"""Seconds that a job may take from its submission until its relay connects."""
GRACE, POLL = 30.0, 0.5
"""Seconds that the relay may answer after a site's time is up, and between two checks of the server."""
OVER = ("FINISHED", "FAILED", "ABORTED")
"""How the status of a job that has ended begins."""


class Remote:
    """The sites of a consortium, to be passed to `fit` instead of tables.

    Parameters
    ----------
    coordinator : path
        The coordinator's folder, which ``unpooled coordinator create`` made.
    timeout : float, default=600.0
        Seconds that a site may take to answer a question, or to connect again. Increase it if sites are slow
        or large.
    notify : callable, optional
        Called with a line of text whenever the study waits for a site.

    Examples
    --------
    >>> sites = Remote("consortium/coordinator", timeout=1800)  # FedCI().fit(study, sites)
    """

    def __init__(self, coordinator: Path | str, timeout: float = 600.0, *, notify: Notify = silent) -> None:
        self._coordinator, self._timeout, self._notify = Path(coordinator), timeout, notify

    def engine(self, study: Study) -> RemoteEngine:
        """An engine to be used in a `with` block, at the end of which the job ends."""
        transport = JobTransport(self._coordinator, self._timeout, self._notify)
        return RemoteEngine(transport, study, self._notify)


class JobTransport:
    """See `unpooled.engines.remote.Transport`: a job, and a socket file to which its relay connects."""

    def __init__(self, coordinator: Path, timeout: float, notify: Notify) -> None:
        self._coordinator, self._timeout, self._notify = coordinator, timeout, notify
        self._sites = members(coordinator)
        self._job, self._relay, self._resources = "", None, ExitStack()

    @property
    def sites(self) -> tuple[str, ...]:
        return self._sites

    def connect(self, sites: tuple[str, ...]) -> set[str]:
        if self._relay is not None:
            return set()
        try:
            with session(self._coordinator) as visit:
                self._wait_for(visit, sites)
                self._submit(visit, sites)
        except BaseException:
            self._abort()
            raise
        return set(sites)  # a new job starts a new process at every site

    def send(self, envelopes: Mapping[str, bytes]) -> dict[str, bytes | Unreachable]:
        assert self._relay is not None
        wait = self._timeout + GRACE
        try:
            self._relay.send(Request(dict(envelopes), self._timeout).encode(), wait)
            response = decode_response(self._relay.receive(wait))
        except EOFError:
            self.close()
            raise Disconnected from None
        except TimeoutError:
            self._abort()
            raise Disconnected from None
        late = Unreachable(f"no answer within {self._timeout:g} s")
        gone = {name: Unreachable("it has disconnected") for name in response.disconnected}
        answers = {name: response.replies.get(name, gone.get(name, late)) for name in envelopes}
        if any(isinstance(answer, Unreachable) for answer in answers.values()):
            self._abort()  # only a new job gives the site a new process
        return answers

    def close(self) -> None:
        """Disconnect from the relay, which ends the job."""
        self._resources.close()
        self._job, self._relay = "", None

    def _abort(self) -> None:
        """Also end a job whose relay or site no longer responds."""
        job = self._job
        self.close()
        if job:
            with suppress(Exception), session(self._coordinator) as visit:  # the server may have ended too
                visit.abort_job(job)

    def _wait_for(self, visit: Session, sites: tuple[str, ...]) -> None:
        """Return once all sites are connected to the server."""
        until, notified = time.monotonic() + self._timeout, False
        while absent := [name for name in sites if name not in connected(visit)]:
            if not notified:
                self._notify(f"waiting for {', '.join(absent)}, at most {self._timeout:g} s")
            notified = True
            if time.monotonic() > until:
                raise SiteLost(absent[0], f"not connected for {self._timeout:g} s")
            time.sleep(POLL)

    def _submit(self, visit: Session, sites: tuple[str, ...]) -> None:
        folder = Path(self._resources.enter_context(tempfile.TemporaryDirectory(prefix="unpooled-")))
        listening = self._resources.enter_context(socket.socket(socket.AF_UNIX))
        address = folder / "relay"  # in a folder that only this user may enter
        listening.bind(str(address))
        listening.listen(1)
        self._notify(f"connecting to {', '.join(sites)}")
        self._job = visit.submit_job(str(write_job(folder, "study", sites, str(address))))
        self._relay = self._resources.enter_context(Channel(self._accept(visit, listening)))

    def _accept(self, visit: Session, listening: socket.socket) -> socket.socket:
        """The relay's connection; raises if the job ends before its relay connects."""
        listening.settimeout(POLL)
        until = time.monotonic() + JOB_START
        while time.monotonic() < until:
            with suppress(TimeoutError):
                return listening.accept()[0]
            status = str(visit.get_job_meta(self._job).get(JobMetaKey.STATUS.value, ""))
            if status.startswith(OVER):
                raise _not_started(f"its job ended with {status}")
        raise _not_started(f"its job did not start within {JOB_START:.0f} s")


def _not_started(found: str) -> EngineError:
    return EngineError(
        "the study must reach the sites",
        found=found,
        remedy="read the logs of the coordinator and the sites, then continue with --resume",
    )


@contextmanager
def session(coordinator: Path) -> Iterator[Session]:
    """The lead's session with the server; left open, it would keep this process from ending."""
    logging.getLogger("nvflare").setLevel(logging.CRITICAL)  # the error below replaces its log lines
    try:
        with redirect_stdout(io.StringIO()):  # NVIDIA FLARE prints the connection
            opened = new_secure_session(LEAD, str(coordinator / "lead"), timeout=10.0)
    except Exception as error:  # NVIDIA FLARE raises many kinds
        raise EngineError(
            "the coordinator must be running",
            found=f"no answer at its address ({type(error).__name__})",
            remedy="start it with `unpooled coordinator start`; continue a stopped study with --resume",
        ) from None
    try:
        yield opened
    finally:
        opened.close()


def connected(visit: Session) -> set[str]:
    """The sites that sent a heartbeat recently."""
    clients = visit.get_system_info().client_info
    return {one.name for one in clients if time.time() - (one.last_connect_time or 0.0) < CONNECTED_WITHIN}


def members(coordinator: Path) -> tuple[str, ...]:
    """Every site of this coordinator's consortium, in its order."""
    return tuple(read_own_consortium(Path(coordinator)).sites)
