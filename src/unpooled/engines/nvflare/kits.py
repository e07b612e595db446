"""The coordinator's folder: the consortium's authority, its own two kits, invitations and admissions."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from unpooled.engines.nvflare.admission import Admission, Invitation, Request, verified
from unpooled.engines.nvflare.authority import Authority, key_pem, new_key, pem
from unpooled.engines.nvflare.certificates import read_certificate, require_valid_now
from unpooled.engines.nvflare.configuration import configure_lead, configure_server
from unpooled.engines.nvflare.consortium import IDENTITY, LEAD, Consortium, Identity
from unpooled.errors import EngineError, ResultsError
from unpooled.site.known_sites import FILE, SitesFile, read_sites
from unpooled.site.private_files import write_whole

CONSORTIUM = "consortium.json"
COORDINATOR = "coordinator"
"""The organisation of the server and of the lead."""
ADMISSIONS = "admissions"
_AUTHORITY = "authority"


@dataclass(frozen=True)
class Kits:
    """The coordinator's folder, and the invitation to send to each site."""

    coordinator: Path
    invitations: Mapping[str, Path]

    @property
    def server(self) -> Path:
        return self.coordinator / "server"

    @property
    def lead(self) -> Path:
        return self.coordinator / "lead"


@dataclass(frozen=True)
class Admitted:
    """A site that was admitted: the file to send to it, and its public identity."""

    name: str
    identity: bytes
    path: Path


def create(consortium: Consortium, folder: str | Path) -> Kits:
    """Make the consortium's authority, the keys of server and lead, and an invitation for every site.

    No site's key is made here. The authority's key stays, so that sites can be admitted.
    """
    folder = Path(folder).absolute()
    _require_empty(folder)
    try:
        return _write(consortium, Authority.new(consortium.name, consortium.days), folder)
    except OSError as error:
        raise ResultsError(
            "the folder for a consortium must be writable",
            found=f"{error.strerror or type(error).__name__}: {folder}",
            remedy="choose a folder that this user may write to, on a disk with free space",
        ) from None


def admit(coordinator: Path, asked: Request, *, replace: bool = False) -> Admitted:
    """Sign a site's request, and add the site to the list of sites.

    With `replace`, a site may have other keys than those with which it was admitted before.
    """
    coordinator = Path(coordinator).absolute()
    consortium, authority = read_own_consortium(coordinator), Authority.read(coordinator / _AUTHORITY)
    require_valid_now("the consortium's", authority.root)
    if asked.name not in consortium.sites:
        raise EngineError(
            "a request must come from a site of the consortium",
            found=f"one from '{asked.name}'; its sites are {', '.join(consortium.sites)}",
            remedy="check who sent it",
        )
    invitation = _invitation(consortium, asked.name, authority)
    public = verified(asked, invitation)
    path = coordinator.parent / ADMISSIONS / f"{asked.name}.admission.json"
    identity, listed = bytes.fromhex(asked.identity), admitted_sites(coordinator)
    if not replace and (
        listed.get(asked.name, identity) != identity or _certified(path) not in (None, public)
    ):
        raise EngineError(
            f"'{asked.name}' was admitted already, with other keys",
            found="a second, different request",
            remedy="telephone its custodian; if the site has really been set up anew, admit it with "
            "--replace, and send the new list of sites to everybody",
        )
    sites = {**{name: one.hex() for name, one in listed.items()}, asked.name: identity.hex()}
    ordered = {name: sites[name] for name in consortium.sites if name in sites}
    content = _list_of(consortium.name, ordered, asked.name)
    certificate = authority.certify(invitation.site, public)
    answer = Admission(kind="admission", name=asked.name, certificate=pem(certificate).decode())
    _private_folder(path.parent)
    write_whole(path, answer.model_dump_json(indent=2) + "\n")
    write_whole(sites_path(coordinator), content.model_dump_json(indent=2) + "\n")
    return Admitted(asked.name, identity, path)


def sites_path(coordinator: Path) -> Path:
    """The list of all admitted sites, which every custodian needs."""
    return Path(coordinator).absolute().parent / FILE


def admitted_sites(coordinator: Path) -> dict[str, bytes]:
    """The public identity of each admitted site."""
    path = sites_path(coordinator)
    return read_sites(path) if path.exists() else {}


def read_own_consortium(coordinator: Path) -> Consortium:
    """The consortium of a coordinator's folder."""
    try:
        consortium = Consortium(**json.loads((coordinator / CONSORTIUM).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        found = f"no coordinator in {coordinator}"
    else:
        if (coordinator / _AUTHORITY).is_dir():
            return consortium
        found = f"a consortium of an earlier version, in which the coordinator made all keys: {coordinator}"
    raise ResultsError(
        "a coordinator's folder must hold its consortium and the consortium's authority",
        found=found,
        remedy="make a new one with `unpooled coordinator create consortium.toml`, or give its folder",
    )


def _list_of(consortium: str, sites: dict[str, str], name: str) -> SitesFile:
    try:
        return SitesFile(consortium=consortium, sites=sites)
    except ValidationError:
        raise EngineError(
            "every site must have an identity of its own",
            found=f"'{name}' with the identity of another site",
            remedy="join in a folder of its own at each site; do not copy a site's folder",
        ) from None


def _certified(path: Path) -> object:
    """The key for which a site was admitted before; None if it was not."""
    try:
        admission = Admission.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return read_certificate(admission.certificate.encode(), "an admission's certificate").public_key()


def _invitation(consortium: Consortium, name: str, authority: Authority) -> Invitation:
    organisation = consortium.sites[name].organisation
    return Invitation(
        kind="invitation",
        site=Identity(name=name, organisation=organisation, **_address(consortium)),  # type: ignore[arg-type]
        root=pem(authority.root).decode(),
    )


def _address(consortium: Consortium) -> dict[str, object]:
    return {"consortium": consortium.name, **consortium.coordinator.model_dump()}


def _require_empty(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        found = f"a file of that name: {folder}"
    elif folder.is_dir() and any(folder.iterdir()):
        found = f"files in {folder}"
    else:
        return
    raise ResultsError(
        "a folder for a consortium must be new or empty", found=found, remedy="choose another folder"
    )


def _write(consortium: Consortium, authority: Authority, folder: Path) -> Kits:
    invitations = folder / "invitations"
    kits = Kits(folder / "coordinator", {name: invitations / f"{name}.json" for name in consortium.sites})
    for one in (folder, kits.coordinator, invitations):
        _private_folder(one)
    host, at = consortium.coordinator.host, _address(consortium)
    server = Identity(name=host, organisation=COORDINATOR, **at)  # type: ignore[arg-type]
    lead = Identity(name=LEAD, organisation=COORDINATOR, **at)  # type: ignore[arg-type]
    _write_kit(kits.server, server, authority, "server")
    _write_kit(kits.lead, lead, authority, "client", role="lead")
    configure_server(kits.server, server)
    configure_lead(kits.lead, lead)
    _write_files(authority.files(), kits.coordinator / _AUTHORITY)
    _private_file(kits.coordinator / CONSORTIUM, _json(consortium.model_dump(mode="json")))
    for name, path in kits.invitations.items():
        _private_file(path, _json(_invitation(consortium, name, authority).model_dump()))
    return kits


def _write_kit(folder: Path, identity: Identity, authority: Authority, kind: str, role: str = "") -> None:
    key = new_key()
    certificate = authority.certify(identity, key.public_key(), role)
    contents = {
        IDENTITY: _json(identity.model_dump()),
        f"startup/{kind}.crt": pem(certificate),
        f"startup/{kind}.key": key_pem(key),
        "startup/rootCA.pem": pem(authority.root),
    }
    _write_files(contents, folder)


def _write_files(contents: Mapping[str, bytes], folder: Path) -> None:
    _private_folder(folder)
    for name, content in contents.items():
        _private_folder((folder / name).parent)
        _private_file(folder / name, content)


def _json(content: dict[str, object]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()


def _private_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def _private_file(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
