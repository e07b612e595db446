"""Kits: a party's identity, key and certificate; a folder for the coordinator, an archive for each site."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from unpooled.engines.nvflare.configuration import configure_lead, configure_server
from unpooled.engines.nvflare.consortium import IDENTITY, LEAD, Consortium, Identity, parse_identity
from unpooled.errors import ResultsError

CONSORTIUM = "consortium.json"
KIT = "kit"
"""The folder of a site's kit inside the site's own folder."""

COORDINATOR = "coordinator"
"""The organisation of the server and of the lead."""

_ROOT = "startup/rootCA.pem"
_SERVER = ("startup/server.crt", "startup/server.key", _ROOT)
_CLIENT = ("startup/client.crt", "startup/client.key", _ROOT)
_LARGEST = 64 * 1024
"""Bytes of the largest file in a kit."""


@dataclass(frozen=True)
class Kits:
    """The coordinator's folder, and the archive to hand to each site."""

    coordinator: Path
    sites: Mapping[str, Path]

    @property
    def server(self) -> Path:
        return self.coordinator / "server"

    @property
    def lead(self) -> Path:
        return self.coordinator / "lead"


def create(consortium: Consortium, folder: str | Path) -> Kits:
    """Make new certificates for every party of the consortium, and their kits in a new or empty folder.

    The key that signed the certificates is not kept, so no party can be added later, not even by a thief.
    """
    folder = Path(folder).absolute()
    _require_empty(folder)
    with tempfile.TemporaryDirectory(prefix="unpooled-") as private:
        made = _certify(consortium, Path(private))
        try:
            return _write(consortium, made, folder)
        except OSError as error:
            raise ResultsError(
                "the folder for kits must be writable",
                found=f"{error.strerror or type(error).__name__}: {folder}",
                remedy="choose a folder that this user may write to, on a disk with free space",
            ) from None


def unpack(archive: str | Path, folder: str | Path) -> Path:
    """Unpack a site's kit into a new or empty folder that only this user may read."""
    folder = Path(folder).absolute()
    _require_empty(folder)
    contents = _contents(Path(archive))
    _private_folder(folder)
    _write_files(contents, folder)
    return folder


def _contents(archive: Path) -> dict[str, bytes]:
    """An archive's files, if they are exactly those of a kit."""
    expected = {IDENTITY, *_CLIENT}
    try:
        with zipfile.ZipFile(archive) as kit:
            sizes = {one.filename: one.file_size for one in kit.infolist()}
            if set(sizes) == expected and max(sizes.values()) <= _LARGEST:
                contents = {name: kit.read(name) for name in sizes}
                if parse_identity(contents[IDENTITY]) is not None:
                    return contents
    except (OSError, zipfile.BadZipFile):
        pass
    raise ResultsError(
        "a site needs the kit that its coordinator sent",
        found=f"not a site's kit: {archive}",
        remedy="give the archive NAME.zip unchanged, or ask the coordinator to send it again",
    )


def _require_empty(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        found = f"a file of that name: {folder}"
    elif folder.is_dir() and any(folder.iterdir()):
        found = f"files in {folder}"
    else:
        return
    raise ResultsError("a folder for kits must be new or empty", found=found, remedy="choose another folder")


def _certify(consortium: Consortium, private: Path) -> Path:
    """Let NVIDIA FLARE make keys and certificates, one folder per party."""
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.prov_utils import prepare_builders
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner

    project = _project(consortium)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        context = Provisioner(str(private), prepare_builders(project)).provision(prepare_project(project))
    if context.get(CtxKey.BUILD_ERROR):
        reasons = " ".join(str(reason) for reason in context.get(CtxKey.ERRORS, []))
        raise ResultsError(
            "NVIDIA FLARE must be able to make the certificates",
            found=reasons or "a failure without a reason",
            remedy="check the names and the host in the consortium file, and the free space on the disk",
        )
    return Path(context[CtxKey.CURRENT_PROD_DIR])


def _project(consortium: Consortium) -> dict[str, object]:
    coordinator = consortium.coordinator
    parties: list[dict[str, object]] = [
        {"name": coordinator.host, "type": "server", "org": COORDINATOR, "fed_learn_port": coordinator.port},
        {"name": LEAD, "type": "admin", "org": COORDINATOR, "role": "lead"},
    ]
    for name, member in consortium.sites.items():
        parties.append({"name": name, "type": "client", "org": member.organisation})
    builders = "nvflare.lighter.impl"
    return {
        "api_version": 3,
        "name": consortium.name,
        "participants": parties,
        "builders": [
            {"path": f"{builders}.workspace.WorkspaceBuilder", "args": {}},
            {"path": f"{builders}.cert.CertBuilder", "args": {"root_valid_days": consortium.days}},
        ],
    }


def _write(consortium: Consortium, made: Path, folder: Path) -> Kits:
    kits = Kits(folder / "coordinator", {name: folder / "kits" / f"{name}.zip" for name in consortium.sites})
    for one in (folder, kits.coordinator, kits.server, kits.lead, folder / "kits"):
        _private_folder(one)
    at = {"consortium": consortium.name, **consortium.coordinator.model_dump()}
    host = consortium.coordinator.host
    server = Identity(name=host, organisation=COORDINATOR, **at)
    lead = Identity(name=LEAD, organisation=COORDINATOR, **at)
    _write_files(_kit(made / host, server, _SERVER), kits.server)
    _write_files(_kit(made / LEAD, lead, _CLIENT), kits.lead)
    configure_server(kits.server, server)
    configure_lead(kits.lead, lead)
    _private_file(kits.coordinator / CONSORTIUM, _json(consortium.model_dump(mode="json")))
    for name, member in consortium.sites.items():
        identity = Identity(name=name, organisation=member.organisation, **at)
        _private_file(kits.sites[name], _archive(_kit(made / name, identity, _CLIENT)))
    return kits


def _kit(made: Path, identity: Identity, files: tuple[str, ...]) -> dict[str, bytes]:
    return {IDENTITY: _json(identity.model_dump()), **{name: (made / name).read_bytes() for name in files}}


def _write_files(contents: Mapping[str, bytes], folder: Path) -> None:
    for name, content in contents.items():
        _private_folder((folder / name).parent)
        _private_file(folder / name, content)


def _archive(contents: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = 0o600 << 16
            archive.writestr(entry, content)
    return packed.getvalue()


def _json(content: dict[str, object]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()


def _private_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def _private_file(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
