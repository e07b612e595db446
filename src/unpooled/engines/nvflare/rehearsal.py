"""A whole deployment on one machine: a real coordinator, real site processes, mutual TLS over loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from unpooled.engines.nvflare.admission import (
    KIT,
    Admission,
    Invitation,
    Request,
    accept,
    read_file,
    request,
)
from unpooled.engines.nvflare.consortium import Consortium
from unpooled.engines.nvflare.engine import Remote
from unpooled.engines.nvflare.kits import Kits, admit, admitted_sites, create
from unpooled.engines.nvflare.processes import Party, start_server, start_site, wait_until_listening
from unpooled.methods.method import with_explicit_settings
from unpooled.site.approval import Approvals
from unpooled.site.folder import SiteFolder
from unpooled.study import Source, Study


@dataclass(frozen=True)
class Rehearsal:
    """The running parties, each with a folder of its own."""

    kits: Kits
    port: int
    folders: Mapping[str, Path]
    server: Party
    sites: dict[str, Party]

    def remote(self, *, timeout: float = 600.0) -> Remote:
        return Remote(self.kits.coordinator, timeout)


def enter(kits: Kits, own: SiteFolder, *, replace: bool = False) -> Path:
    """Join, admit and accept, where one person is the coordinator and the site; returns the site's kit."""
    invitation = read_file(kits.invitations[own.name], Invitation)
    admitted = admit(kits.coordinator, read_file(request(invitation, own), Request), replace=replace)
    accept(read_file(admitted.path, Admission), own)
    return own.folder / KIT


@contextmanager
def rehearsal(study: Study, sources: Mapping[str, Source], folder: Path) -> Iterator[Rehearsal]:
    """Provision all parties, approve the study at every site and start them; stop them at the end."""
    port = free_port()
    members = {name: {} for name in sources}
    consortium = Consortium(name="rehearsal", coordinator={"port": port}, sites=members)  # type: ignore[arg-type]
    kits = create(consortium, folder / "consortium")
    folders = {name: folder / name for name in sources}
    for name, source in sources.items():
        enter(kits, SiteFolder.create(folders[name], name, source, rehearsal=True))
    for name in sources:
        own, known = SiteFolder.read(folders[name]), admitted_sites(kits.coordinator)
        Approvals(own.approvals).decide(with_explicit_settings(study), approved=True, sites=known)
    with ExitStack() as started:
        server = start_server(kits.server)
        started.callback(server.stop)
        wait_until_listening("localhost", port, server)
        sites: dict[str, Party] = {}
        started.callback(_stop, sites)
        for name, own in folders.items():
            sites[name] = start_site(own / KIT)
        yield Rehearsal(kits, port, folders, server, sites)


def _stop(sites: dict[str, Party]) -> None:
    """Stop the sites that run at the end; some may have been restarted."""
    for site in sites.values():
        site.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
