"""The same walk with every party as a host of its own: a network namespace, an address, one port open."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engines.test_nvflare_cli import SITES, machines, walk

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

PORT, OTHER_PORT = 8102, 8103
COORDINATOR = "10.217.0.1"
ADDRESSES = {name: f"10.217.{number}.2" for number, name in enumerate(SITES, start=1)}
OUTSIDE = "192.0.2.1"
"""Set aside for documentation, and here nobody's."""
HOSTS = {name: f"up{os.getpid()}{name[0]}" for name in ("coordinator", *SITES)}

LISTEN = """
import socket, sys
held = [socket.create_server(("", int(port))) for port in sys.argv[1:]]
print("listening", flush=True)
sys.stdin.read()
"""
CALL = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 1.5).close()
except OSError:
    sys.exit(1)
"""


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def inside(host: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", HOSTS[host])


def make_site(number: int, name: str) -> None:
    """A cable to the coordinator, and no route but to its one port: the firewall line of the page."""
    own, cable = HOSTS[name], f"to{name}"
    ip("-n", HOSTS["coordinator"], "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", own)
    ip("-n", HOSTS["coordinator"], "addr", "add", f"10.217.{number}.1/24", "dev", cable)
    ip("-n", HOSTS["coordinator"], "link", "set", "dev", cable, "up")
    ip("netns", "exec", own, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6")
    ip("-n", own, "addr", "add", f"{ADDRESSES[name]}/24", "dev", "eth0")
    ip("-n", own, "link", "set", "dev", "eth0", "up")
    ip("-n", own, "route", "add", "default", "via", f"10.217.{number}.1")
    to_coordinator = ("to", COORDINATOR, "ipproto", "tcp", "dport", f"{PORT}")
    ip("-n", own, "rule", "add", "priority", "10", *to_coordinator, "lookup", "main")
    ip("-n", own, "rule", "add", "priority", "20", "unreachable")


@pytest.fixture
def network() -> Iterator[None]:
    if shutil.which("ip") is None:
        pytest.skip("network namespaces are made with `ip`, which is not installed")
    try:
        for host in HOSTS.values():
            ip("netns", "add", host)
            ip("-n", host, "link", "set", "dev", "lo", "up")
        ip("-n", HOSTS["coordinator"], "addr", "add", f"{COORDINATOR}/32", "dev", "lo")
        # It would pass on whatever comes: what a site cannot reach, it cannot reach by its own rules.
        ip(*inside("coordinator")[1:], "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        for number, name in enumerate(SITES, start=1):
            make_site(number, name)
    except OSError as error:
        remove()
        pytest.skip(f"network namespaces cannot be made here: {error}")
    try:
        yield
    finally:
        remove()


def remove() -> None:
    for host in HOSTS.values():
        subprocess.run(["ip", "netns", "delete", host], capture_output=True, check=False)


@contextmanager
def listening(host: str, *ports: int) -> Iterator[None]:
    words = [*inside(host), sys.executable, "-c", LISTEN, *map(str, ports)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"listening\n"
        try:
            yield
        finally:
            process.kill()


def reaches(host: str, address: str, port: int) -> bool:
    words = [*inside(host), sys.executable, "-c", CALL, address, f"{port}"]
    return subprocess.run(words, check=False).returncode == 0


@pytest.mark.usefixtures("network")
def test_a_site_reaches_the_coordinators_port_and_nothing_else_and_nobody_reaches_a_site() -> None:
    both = (PORT, OTHER_PORT)
    with listening("coordinator", *both), listening("north", *both), listening("south", *both):
        assert reaches("coordinator", COORDINATOR, OTHER_PORT)
        for name, other in zip(SITES, reversed(SITES), strict=True):
            assert reaches(name, ADDRESSES[name], OTHER_PORT), "somebody does listen"
            assert reaches(name, COORDINATOR, PORT)
            assert not reaches(name, COORDINATOR, OTHER_PORT)
            assert not reaches(name, OUTSIDE, PORT)
            assert not any(reaches(name, ADDRESSES[other], port) for port in both)
            assert not any(reaches("coordinator", ADDRESSES[name], port) for port in both)


@pytest.mark.usefixtures("network")
def test_the_walk_between_hosts_gives_the_numbers_of_one_process(tmp_path: Path) -> None:
    pytest.importorskip("nvflare")
    with machines(tmp_path, {host: inside(host) for host in HOSTS}) as at:
        walk(at, COORDINATOR, PORT)
