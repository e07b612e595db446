"""The server and the sites as processes, started and stopped together with every process that they start.

NVIDIA FLARE's modules run inside `python -m unpooled.engines.nvflare.processes MODULE ARGUMENT …`, which ends
when its parent ends: its standard input is a pipe to which the parent never writes, so the pipe closes.
"""

from __future__ import annotations

import os
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from unpooled.engines.nvflare.configuration import STORAGE, configure_server, configure_site
from unpooled.engines.nvflare.consortium import read_identity
from unpooled.errors import EngineError

LOG = "process.log"
HEARTBEAT_INTERVAL = 2
"""Seconds between two heartbeats of a site."""

_APPS = "nvflare.private.fed.app"
_REJECTED = b"registration rejected: register_client unauthenticated"
"""What NVIDIA FLARE logs if the server's doorkeeper refuses a site."""


@dataclass(frozen=True)
class Party:
    """A running server or site, started from the kit in a folder; it ends when this process ends."""

    process: subprocess.Popen[bytes]
    folder: Path
    logged: int = 0
    """Bytes of the log before it was started."""

    @property
    def log(self) -> Path:
        """The output of it and of its job processes."""
        return self.folder / LOG

    @property
    def refused(self) -> bool:
        """Whether the server refused a site because another process with its key is connected."""
        with suppress(OSError), self.log.open("rb") as file:
            file.seek(self.logged)
            return _REJECTED in file.read()
        return False

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit code once it has ended, None if it still runs after `timeout` seconds."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, grace: float = 5.0) -> None:
        """Terminate it; after `grace` seconds at most, kill it and every process that it started."""
        family = self._family()
        if self.alive:
            self.process.terminate()
            self.wait(grace)
        family |= self._family() | _of_kit(self.folder)
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        until = time.monotonic() + grace
        while any(_runs(one) for one in family) and time.monotonic() < until:
            time.sleep(0.02)

    def _family(self) -> set[psutil.Process]:
        """The process and its descendants; none once it has ended, as its id may be reused."""
        if not self.alive:
            return set()
        head = psutil.Process(self.process.pid)
        return {head, *head.children(recursive=True)}


def start_server(folder: str | Path) -> Party:
    """Start the coordinator's server from its kit."""
    folder = Path(folder).absolute()
    identity = read_identity(folder)
    _require_free("127.0.0.1" if identity.host == "localhost" else "", identity.port)
    configure_server(folder, identity)
    return _start(folder, "server", [f"org={identity.organisation}"], {STORAGE: str(folder / "storage")})


def start_site(folder: str | Path) -> Party:
    """Start a site from its unpacked kit."""
    folder = Path(folder).absolute()
    identity = read_identity(folder)
    configure_site(folder, identity)
    heartbeat = f"heart_beat_interval={HEARTBEAT_INTERVAL}"
    settings = [f"uid={identity.name}", f"org={identity.organisation}", heartbeat]
    return _start(folder, "client", settings, {})


def wait_until_listening(host: str, port: int, party: Party, timeout: float = 60.0) -> None:
    """Return as soon as the server accepts connections; raise if it ends or takes too long."""
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        if not party.alive:
            raise EngineError(
                "the server must run",
                found=f"it ended with code {party.process.returncode}",
                remedy=f"read {party.log}",
            )
        with suppress(OSError), socket.create_connection((host, port), timeout=1.0):
            return
        time.sleep(0.1)
    raise EngineError(
        f"the server must listen at {host}:{port}",
        found=f"no connection after {timeout:.0f} s",
        remedy=f"read {party.log}",
    )


def _start(folder: Path, kind: str, settings: list[str], environment: dict[str, str]) -> Party:
    _require_plain(folder)
    if _of_kit(folder):
        raise EngineError(
            "a kit is used by one process at a time",
            found=f"another process that runs from {folder}",
            remedy="stop that process first",
        )
    command = [sys.executable, "-u", "-m", __name__]
    command += [f"{_APPS}.{kind}.{kind}_train", "-m", str(folder), "-s", f"fed_{kind}.json"]
    command += ["--set", "secure_train=true", "config_folder=config", *settings]
    logged = (folder / LOG).stat().st_size if (folder / LOG).exists() else 0
    with os.fdopen(os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "MALLOC_ARENA_MAX": "4", "PYTHONSAFEPATH": "1", **environment},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o077,
        )
    return Party(process, folder, logged)


def _require_plain(folder: Path) -> None:
    """Refuse a path that NVIDIA FLARE would split when it composes a command line for a job."""
    for path in (str(folder), os.path.realpath(folder), sys.executable):
        try:
            plain = shlex.split(path, comments=True) == [path]
        except ValueError:  # an unmatched quotation mark
            plain = False
        if not plain:
            raise EngineError(
                "NVIDIA FLARE needs a path without spaces, quotation marks, '\\' and '#'",
                found=path,
                remedy="move it to a folder with a plain name",
            )


def _require_free(address: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise EngineError(
                f"the coordinator must be able to listen at port {port}",
                found=error.strerror or type(error).__name__,
                remedy="stop the program that uses it, or give the consortium another port",
            ) from None


def _of_kit(folder: Path) -> set[psutil.Process]:
    """Every process that runs from a kit, including those whose parent has ended."""
    found: set[psutil.Process] = set()
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            arguments = one.cmdline()
            if str(folder) in arguments and any(part.startswith(_APPS) for part in arguments):
                found.add(one)
    return found


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)
    own = psutil.Process()
    for one in own.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            one.kill()
    os.kill(own.pid, signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
