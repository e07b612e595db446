"""The server and the sites as processes of this Python, started and stopped with everything they start."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from unpooled.engines.nvflare.badge import read_badge
from unpooled.engines.nvflare.configuration import STORAGE, configure_server, configure_site
from unpooled.errors import EngineError

LOG = "process.log"
HEART_BEAT_INTERVAL = 2
"""Seconds between two signs of life of a site."""

_APPS = "nvflare.private.fed.app"


@dataclass(frozen=True)
class Party:
    """A running server or site, started from the kit in a folder; it ends when this process does."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def log(self) -> Path:
        """What it and the processes of its jobs wrote."""
        return self.folder / LOG

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
        """Ask it to end; after `grace` seconds at most, end it and everything that it started."""
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
        """This process and everything it started; nobody, once its number may be somebody else's."""
        if not self.alive:
            return set()
        head = psutil.Process(self.process.pid)
        return {head, *head.children(recursive=True)}


def start_server(folder: str | Path) -> Party:
    """Start the coordinator's server from its kit."""
    folder = Path(folder).absolute()
    badge = read_badge(folder)
    _require_free("127.0.0.1" if badge.host == "localhost" else "", badge.port)
    configure_server(folder, badge)
    return _start(folder, "server", [f"org={badge.organisation}"], {STORAGE: str(folder / "storage")})


def start_site(folder: str | Path) -> Party:
    """Start a site from its unpacked kit."""
    folder = Path(folder).absolute()
    badge = read_badge(folder)
    configure_site(folder, badge)
    told = [f"uid={badge.name}", f"org={badge.organisation}", f"heart_beat_interval={HEART_BEAT_INTERVAL}"]
    return _start(folder, "client", told, {})


def wait_until_listening(host: str, port: int, party: Party, timeout: float = 60.0) -> None:
    """Return as soon as the server takes connections; raise if it ends or stays silent instead."""
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
        found=f"nobody there after {timeout:.0f} s",
        remedy=f"read {party.log}",
    )


def _start(folder: Path, kind: str, told: list[str], environment: dict[str, str]) -> Party:
    _require_plain(folder)
    if _of_kit(folder):
        raise EngineError(
            "a kit is used by one process at a time",
            found=f"one that runs from {folder}",
            remedy="stop that one first",
        )
    command = [sys.executable, "-u", "-m", "unpooled.engines.nvflare.attended"]
    command += [f"{_APPS}.{kind}.{kind}_train", "-m", str(folder), "-s", f"fed_{kind}.json"]
    command += ["--set", "secure_train=true", "config_folder=config", *told]
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
    return Party(process, folder)


def _require_plain(folder: Path) -> None:
    """NVIDIA FLARE pastes paths into a command line that it splits again, and so loses its jobs."""
    for path in (str(folder), os.path.realpath(folder), sys.executable):
        try:
            plain = shlex.split(path, comments=True) == [path]
        except ValueError:  # a quotation mark without its partner
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
                remedy="stop whoever listens there, or give the consortium another port",
            ) from None


def _of_kit(folder: Path) -> set[psutil.Process]:
    """Every process that runs from a kit, also those whose parent has gone."""
    found: set[psutil.Process] = set()
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            words = one.cmdline()
            if str(folder) in words and any(word.startswith(_APPS) for word in words):
                found.add(one)
    return found


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
