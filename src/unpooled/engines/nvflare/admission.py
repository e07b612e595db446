"""How a site is admitted: an invitation, a request from keys that the site made, and an admission.

All three are files that are no secret. A request is signed by the site's identity and names the invitation
that it answers. So whoever compares the fingerprint of this identity by telephone has also compared the
certificate's key, the consortium's root and the coordinator's address.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Literal, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from nvflare.lighter.utils import x509_name
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unpooled.disclosure.private_files import make_own_folder
from unpooled.engines.nvflare.authority import key_pem, new_key, pem
from unpooled.engines.nvflare.certificates import read_certificate, require_issued_to
from unpooled.engines.nvflare.consortium import IDENTITY, NAME, Identity, read_identity
from unpooled.errors import EngineError, ResultsError
from unpooled.site.folder import SiteFolder
from unpooled.site.identity import read_identity_key
from unpooled.site.private_files import write_whole

KIT = "kit"
"""The folder in the site's own folder from which NVIDIA FLARE starts."""
CERTIFICATE, PRIVATE_KEY, ROOT = "startup/client.crt", "startup/client.key", "startup/rootCA.pem"
_LARGEST = 64 * 1024
"""Bytes of the largest file that is read."""
_LEAST_BITS, _MOST_BITS = 2048, 8192


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Invitation(_File):
    """From the coordinator: who the site is, where the coordinator listens, and by which root to know it."""

    kind: Literal["invitation"]
    site: Identity
    root: str

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(self.model_dump_json().encode()).digest()


class Request(_File):
    """From a site: a certificate is requested for its key, signed by its identity."""

    kind: Literal["request"]
    name: str = Field(pattern=f"^(?:{NAME})$")
    identity: str = Field(pattern="^[0-9a-f]{64}$")
    invitation: str = Field(pattern="^[0-9a-f]{64}$")
    """A digest of the invitation that the site received."""
    csr: str
    signature: str = Field(pattern="^[0-9a-f]{128}$")


class Admission(_File):
    """From the coordinator: the certificate."""

    kind: Literal["admission"]
    name: str = Field(pattern=f"^(?:{NAME})$")
    certificate: str


OneFile = TypeVar("OneFile", Invitation, Request, Admission)
_SENT_BY = {Invitation: "coordinator", Request: "site", Admission: "coordinator"}


def read_file(path: Path, kind: type[OneFile]) -> OneFile:
    """An invitation, a request or an admission."""
    what = kind.__name__.lower()
    if zipfile.is_zipfile(path):
        raise ResultsError(
            f"{what}s are files without keys",
            found=f"a kit with a private key, of an earlier version: {path}",
            remedy="delete it, and ask the coordinator to make invitations with this version: "
            "unpooled coordinator create consortium.toml",
        )
    try:
        with open(path, "rb") as file:
            return kind.model_validate_json(file.read(_LARGEST))
    except (OSError, ValidationError):
        raise ResultsError(
            f"a file must be the {what} that the {_SENT_BY[kind]} sent",
            found=f"no {what}, or a damaged one: {path}",
            remedy=f"give the file unchanged, or ask the {_SENT_BY[kind]} to send it again",
        ) from None


# --- at the site


def request(invitation: Invitation, own: SiteFolder) -> Path:
    """Make the site's keys in its folder, and the request for its coordinator; nothing else may leave."""
    root = read_certificate(invitation.root.encode(), "the invitation's root")
    kit, key = own.folder / KIT, new_key()
    for folder in (kit, kit / "startup"):
        make_own_folder(folder)
    csr = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509_name(invitation.site.name, invitation.site.organisation))
        .sign(key, SHA256())
    )
    signer = read_identity_key(own.identity)
    made = Request(
        kind="request",
        name=invitation.site.name,
        identity=signer.public_key().public_bytes_raw().hex(),
        invitation=invitation.digest.hex(),
        csr=pem(csr).decode(),
        signature=signer.sign(_statement(invitation.digest, csr)).hex(),
    )
    write_whole(kit / IDENTITY, invitation.site.model_dump_json(indent=2) + "\n")
    write_whole(kit / ROOT, pem(root))
    write_whole(kit / PRIVATE_KEY, key_pem(key))
    path = request_path(own)
    write_whole(path, made.model_dump_json(indent=2) + "\n")
    return path


def request_path(own: SiteFolder) -> Path:
    """The request in the site's folder."""
    return own.folder / f"{own.name}.request.json"


def accept(admission: Admission, own: SiteFolder) -> None:
    """Keep the certificate, if it is for this site's key and from the root of its invitation."""
    kit = own.folder / KIT
    identity = read_identity(kit)
    certificate = read_certificate(admission.certificate.encode(), "the admission's certificate")
    if admission.name != identity.name or common_name(certificate.subject) != identity.name:
        raise ResultsError(
            f"the admission must be for this site, '{identity.name}'",
            found="one for another site",
            remedy="ask the coordinator for the admission of this site",
        )
    require_issued_to(certificate, kit / ROOT, kit / PRIVATE_KEY, "the admission")
    write_whole(kit / CERTIFICATE, pem(certificate))


def require_admitted(own: SiteFolder) -> Path:
    """The site's kit, once it holds a certificate."""
    read_identity_key(own.identity)  # a folder of an earlier version has none
    kit = own.folder / KIT
    if not (kit / CERTIFICATE).exists():
        raise ResultsError(
            "a site connects once its coordinator has admitted it",
            found=f"no certificate in {kit}",
            remedy=f"send {request_path(own)} to the coordinator, and give the answer with --admission",
        )
    return kit


# --- at the coordinator


def verified(asked: Request, invitation: Invitation) -> RSAPublicKey:
    """The key for which a certificate is requested; raises if the request is not as the site made it."""
    if asked.invitation != invitation.digest.hex():
        raise _refused(
            asked,
            "a request for another invitation",
            "send the present invitation again, and let the site join with it; if it did, somebody has "
            "exchanged it on the way",
        )
    broken = "ask the site for its request again, by another channel"
    try:
        csr = x509.load_pem_x509_csr(asked.csr.encode())
        public, valid = csr.public_key(), csr.is_signature_valid
        signer = Ed25519PublicKey.from_public_bytes(bytes.fromhex(asked.identity))
        signer.verify(bytes.fromhex(asked.signature), _statement(invitation.digest, csr))
    except InvalidSignature:
        raise _refused(asked, "a signature of another identity", broken) from None
    except (ValueError, TypeError):
        raise _refused(asked, "a damaged request", broken) from None
    if not valid:
        raise _refused(asked, "a signing request that its own key has not signed", broken)
    if common_name(csr.subject) != invitation.site.name:
        raise _refused(asked, "a signing request with another name", broken)
    if not isinstance(public, RSAPublicKey) or not _LEAST_BITS <= public.key_size <= _MOST_BITS:
        raise _refused(asked, "a key of another kind", broken)
    return public


def common_name(subject: x509.Name) -> str | None:
    """The name in a certificate, if there is exactly one."""
    names = [str(one.value) for one in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return names[0] if len(names) == 1 else None


def _statement(invitation: bytes, csr: x509.CertificateSigningRequest) -> bytes:
    """What a site's identity signs."""
    return b"unpooled request" + invitation + csr.public_bytes(Encoding.DER)


def _refused(asked: Request, found: str, remedy: str) -> EngineError:
    return EngineError(f"the request of '{asked.name}' must be in order", found=found, remedy=remedy)
