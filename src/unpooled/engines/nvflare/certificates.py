"""Checks before a party starts: is its certificate in order, and does the coordinator accept it?"""

from __future__ import annotations

import errno
import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from unpooled.engines.nvflare.consortium import read_identity
from unpooled.errors import EngineError

_NEW_KIT = "ask the coordinator for a new invitation, and join again in a new folder"
_NOT_YET_VALID, _EXPIRED = 9, 10
"""OpenSSL's codes."""


class _Rejected(Exception):
    """The coordinator closed the connection after it saw our certificate."""


def check_kit(kit: str | Path) -> None:
    """Raise unless a kit's certificate is valid now, issued by the kit's authority, and matches its key."""
    certificate, key, root = _files(Path(kit))
    require_issued_to(_certificate(certificate), root, key, "a kit")


def require_issued_to(certificate: x509.Certificate, root_file: Path, key_file: Path, what: str) -> None:
    """Raise unless a certificate is valid now, issued by this root, and for this key."""
    root = _certificate(root_file)
    require_valid_now("this site's" if what == "the admission" else "this kit's", certificate)
    require_valid_now("the consortium's", root)
    try:
        certificate.verify_directly_issued_by(root)
    except (ValueError, TypeError, InvalidSignature):
        raise EngineError(
            f"the certificate of {what} must be issued by the authority of the invitation",
            found="one issued by another authority",
            remedy="do not mix the files of two consortia; if nobody has, this may be an attack: "
            "telephone the coordinator",
        ) from None
    if _public(key_file) != certificate.public_key().public_bytes(
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    ):
        raise EngineError(
            f"the certificate of {what} must be for the key that was made here",
            found=f"the key of another certificate: {key_file}",
            remedy="ask the coordinator to admit the request that is in this folder",
        )


def check_connection(kit: str | Path, host: str, port: int, timeout: float = 10.0) -> None:
    """Check the kit, then make a TLS handshake with the coordinator, as NVIDIA FLARE will."""
    check_kit(kit)
    certificate_file, key_file, root_file = _files(Path(kit))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # a certificate names its party, not its host
    context.load_verify_locations(root_file)
    context.load_cert_chain(certificate_file, key_file)
    try:
        with socket.create_connection((host, port), timeout) as plain, context.wrap_socket(plain) as line:
            _require_coordinator(line, read_identity(kit).host)
            _require_acceptance(line, host)
    except (OSError, _Rejected) as error:
        found, remedy = _reason(error, host, timeout)
        raise EngineError(
            f"the coordinator at {host}:{port} must be reachable", found=found, remedy=remedy
        ) from None


def _require_coordinator(line: ssl.SSLSocket, name: str) -> None:
    """Require the coordinator's own certificate: every party has one of the same authority."""
    given = x509.load_der_x509_certificate(line.getpeercert(binary_form=True) or b"")
    names = [one.value for one in given.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if names != [name]:
        raise EngineError(
            f"the coordinator '{name}' must listen there",
            found="another party of the consortium",
            remedy="check host and port; if they are right, this may be an attack: tell the coordinator",
        )


def _require_acceptance(line: ssl.SSLSocket, host: str) -> None:
    """With TLS 1.3 the server checks our certificate after the handshake, and may only close the line."""
    try:
        line.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        if line.recv(1):
            return
    except (ConnectionError, ssl.SSLEOFError):
        pass
    raise _Rejected


def _reason(error: Exception, host: str, timeout: float) -> tuple[str, str]:
    """Why the connection failed, and what to do about it."""
    check = "check that the coordinator listens there"
    match error:
        case socket.gaierror():
            return (
                f"no machine called '{host}' is known",
                "correct the host, or this machine's DNS settings",
            )
        case ConnectionRefusedError():
            return "the connection was refused", "start the coordinator first, and check host and port"
        case OSError(errno=errno.ENETUNREACH | errno.EHOSTUNREACH):
            return "there is no route to it", "allow this outbound connection in the firewall"
        case TimeoutError():
            return f"no answer within {timeout:.0f} s", "allow this outbound connection in the firewall"
        case ssl.SSLCertVerificationError(verify_code=code) if code == _EXPIRED:
            return (
                "the coordinator's certificate has expired",
                "ask the coordinator for a new consortium",
            )
        case ssl.SSLCertVerificationError(verify_code=code) if code == _NOT_YET_VALID:
            return "the coordinator's certificate is not valid yet", "compare the clocks of both machines"
        case ssl.SSLCertVerificationError():
            return (
                "a certificate of another authority",
                "check host and port; if they are right, the kit belongs to another consortium, or something "
                "between the machines intercepts TLS",
            )
        case ssl.SSLError(reason="SSLV3_ALERT_CERTIFICATE_EXPIRED"):
            return "the coordinator rejects our certificate as expired", _NEW_KIT
        case ssl.SSLError(reason=reason) if reason and "ALERT" in reason:
            return "the coordinator rejects our certificate", _NEW_KIT
        case _Rejected():
            return "the coordinator rejects our certificate", _NEW_KIT
        case ssl.SSLError():
            return "the TLS handshake failed", check
        case _:
            return f"the connection broke ({type(error).__name__})", f"{check}, and try again"


def _files(kit: Path) -> tuple[Path, Path, Path]:
    startup = kit / "startup"
    kind = "server" if (startup / "server.crt").exists() else "client"
    return startup / f"{kind}.crt", startup / f"{kind}.key", startup / "rootCA.pem"


def require_valid_now(whose: str, certificate: x509.Certificate) -> None:
    now = datetime.now(UTC)
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < first:
        raise EngineError(
            f"{whose} certificate must be valid now",
            found=f"it is valid from {first:%Y-%m-%d %H:%M} UTC",
            remedy="correct this machine's clock, or wait",
        )
    if now > last:
        raise EngineError(
            f"{whose} certificate must be valid now",
            found=f"it expired on {last:%Y-%m-%d %H:%M} UTC",
            remedy=_NEW_KIT,
        )


def read_certificate(text: bytes, what: str) -> x509.Certificate:
    """A certificate that somebody has sent."""
    try:
        return x509.load_pem_x509_certificate(text)
    except ValueError:
        raise EngineError(
            f"{what} must be a certificate", found="something else", remedy="ask for the file again"
        ) from None


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        raise _unreadable("certificate", path) from None


def _public(path: Path) -> bytes:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        raise _unreadable("key", path) from None
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _unreadable(what: str, path: Path) -> EngineError:
    return EngineError(f"a kit must hold a readable {what}", found=f"none: {path}", remedy=_NEW_KIT)
