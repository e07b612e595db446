"""A real PostgreSQL server for the tests of this folder, from the binaries the package `pgserver` carries.

The server is started here rather than by `pgserver` itself: as root, that package adds a user to the machine
and opens the rights of folders above it. PostgreSQL refuses to run as root, so root starts it as `nobody`,
from a copy.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from sqlalchemy import URL

PASSWORD = "s3cret-word"


@pytest.fixture(scope="session")
def postgresql() -> Iterator[URL]:
    """The address of an empty database on a server that asks for a password."""
    pytest.importorskip("psycopg", reason="the PostgreSQL driver psycopg is not installed")
    package = find_spec("pgserver")
    if package is None or not package.submodule_search_locations:
        pytest.skip(
            "no PostgreSQL to test against: pgserver is not installed (it has no wheel for Python 3.13)"
        )
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        server = _Server(folder, Path(package.submodule_search_locations[0]) / "pginstall")
        server.start()
        yield server.address
        server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Server:
    """One cluster in one temporary folder, on a free port of this machine."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.folder, self.binaries, self.port = folder, binaries, _free_port()
        self.owner = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        (folder / "password").write_text(PASSWORD)
        if self.owner is not None:
            self.binaries = _copy(binaries, folder / "install")
            os.chown(folder, self.owner.pw_uid, self.owner.pw_gid)
            os.chown(folder / "password", self.owner.pw_uid, self.owner.pw_gid)

    @property
    def address(self) -> URL:
        return URL.create("postgresql", "postgres", PASSWORD, "127.0.0.1", self.port, "postgres")

    def start(self) -> None:
        cluster, password = str(self.folder / "cluster"), str(self.folder / "password")
        self._run(
            "initdb", "-D", cluster, "-U", "postgres", "--auth=scram-sha-256", f"--pwfile={password}", "-N"
        )
        options = f"-p {self.port} -h 127.0.0.1 -k {self.folder} -F"
        self._run("pg_ctl", "-D", cluster, "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "cluster"), "-w", "-m", "immediate", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        identity = {}
        if self.owner is not None:
            identity = {"user": self.owner.pw_uid, "group": self.owner.pw_gid, "extra_groups": []}
        command = [str(self.binaries / "bin" / program), *arguments]
        # a file, not a pipe: the server inherits it and would keep a pipe open for ever
        with (self.folder / "output").open("a+") as output:
            done = subprocess.run(
                command, cwd=self.folder, stdout=output, stderr=output, check=False, **identity
            )
            if done.returncode:
                output.seek(0)
                pytest.fail(f"{program} failed:\n{output.read()}")


def _copy(binaries: Path, target: Path) -> Path:
    """A copy `nobody` can reach, with the libraries the wheel keeps beside its package."""
    package = binaries.parent
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name)
    return Path(shutil.copytree(binaries, target / package.name / binaries.name))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
