"""Certificates before anything starts: are ours in order, and does the coordinator accept them?"""

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

from unpooled.engines.nvflare.badge import read_badge
from unpooled.errors import EngineError

_AGAIN = "ask the coordinator for a new kit"
_NOT_YET_VALID, _EXPIRED = 9, 10
"""OpenSSL's codes."""


class _Unaccepted(Exception):
    """The other side hung up on us, though it is the right one."""


def check(kit: str | Path) -> None:
    """Raise unless a kit's certificate is valid now, of the kit's own authority, and belongs to its key."""
    certificate_file, key_file, root_file = _files(Path(kit))
    certificate, root = _certificate(certificate_file), _certificate(root_file)
    for whose, one in (("this kit's", certificate), ("the consortium's", root)):
        _require_valid_now(whose, one)
    try:
        certificate.verify_directly_issued_by(root)
    except (ValueError, TypeError, InvalidSignature):
        raise EngineError(
            "a kit's certificate must be issued by the kit's own authority",
            found=f"one of another authority: {certificate_file}",
            remedy="do not mix the files of two kits; unpack the kit again",
        ) from None
    if _public(key_file) != certificate.public_key().public_bytes(
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    ):
        raise EngineError(
            "a kit's key must belong to its certificate",
            found=f"a key of another certificate: {key_file}",
            remedy="do not mix the files of two kits; unpack the kit again",
        )


def greet(kit: str | Path, host: str, port: int, timeout: float = 10.0) -> None:
    """Shake hands with the coordinator as NVIDIA FLARE will; say in one sentence what stands in the way."""
    check(kit)
    certificate_file, key_file, root_file = _files(Path(kit))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # a certificate names its party, wherever that may listen
    context.load_verify_locations(root_file)
    context.load_cert_chain(certificate_file, key_file)
    try:
        with socket.create_connection((host, port), timeout) as plain, context.wrap_socket(plain) as line:
            _require_coordinator(line, read_badge(kit).host)
            _ask(line, host)
    except (OSError, _Unaccepted) as error:
        found, remedy = _trouble(error, host, timeout)
        raise EngineError(
            f"the coordinator at {host}:{port} must be reached", found=found, remedy=remedy
        ) from None


def _require_coordinator(line: ssl.SSLSocket, name: str) -> None:
    """Every party has a certificate of this authority; only one is the coordinator's."""
    given = x509.load_der_x509_certificate(line.getpeercert(binary_form=True) or b"")
    names = [one.value for one in given.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if names != [name]:
        raise EngineError(
            f"'{name}' must be the one who listens there",
            found="another party of the consortium",
            remedy="check host and port; if they are right, it is a trap: tell the coordinator",
        )


def _ask(line: ssl.SSLSocket, host: str) -> None:
    """With TLS 1.3 the other side judges us after the handshake, and may hang up without a word."""
    try:
        line.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        if line.recv(1):
            return
    except (ConnectionError, ssl.SSLEOFError):
        pass
    raise _Unaccepted


def _trouble(error: Exception, host: str, timeout: float) -> tuple[str, str]:
    """What stands in the way, and what to do about it."""
    look = "check that it is the coordinator who listens there"
    match error:
        case socket.gaierror():
            return (
                f"nobody knows a machine called '{host}'",
                "correct the host, or this machine's name service",
            )
        case ConnectionRefusedError():
            return "nobody listens there", "start the coordinator first, and check host and port"
        case OSError(errno=errno.ENETUNREACH | errno.EHOSTUNREACH):
            return "no way leads there", "let this one outbound connection pass the firewall"
        case TimeoutError():
            return f"no answer within {timeout:.0f} s", "let this one outbound connection pass the firewall"
        case ssl.SSLCertVerificationError(verify_code=code) if code == _EXPIRED:
            return (
                "the coordinator's certificate has expired",
                "ask the coordinator for new kits for everybody",
            )
        case ssl.SSLCertVerificationError(verify_code=code) if code == _NOT_YET_VALID:
            return "the coordinator's certificate is not valid yet", "compare the clocks of both machines"
        case ssl.SSLCertVerificationError():
            return (
                "whoever listens there has a certificate of another authority",
                "check host and port; if they are right, the kit is of another consortium, or it is a trap",
            )
        case ssl.SSLError(reason="SSLV3_ALERT_CERTIFICATE_EXPIRED"):
            return "the coordinator finds our certificate expired", _AGAIN
        case ssl.SSLError(reason=reason) if reason and "ALERT" in reason:
            return "the coordinator does not accept our certificate", _AGAIN
        case _Unaccepted():
            return "the coordinator does not accept our certificate", _AGAIN
        case ssl.SSLError():
            return "no secure connection comes about", look
        case _:
            return f"the connection broke ({type(error).__name__})", f"{look}, and try again"


def _files(kit: Path) -> tuple[Path, Path, Path]:
    startup = kit / "startup"
    kind = "server" if (startup / "server.crt").exists() else "client"
    return startup / f"{kind}.crt", startup / f"{kind}.key", startup / "rootCA.pem"


def _require_valid_now(whose: str, certificate: x509.Certificate) -> None:
    now = datetime.now(UTC)
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < first:
        raise EngineError(
            f"{whose} certificate must be valid now",
            found=f"it is valid from {first:%Y-%m-%d %H:%M} UTC",
            remedy="set this machine's clock right, or wait",
        )
    if now > last:
        raise EngineError(
            f"{whose} certificate must be valid now",
            found=f"it expired on {last:%Y-%m-%d %H:%M} UTC",
            remedy=_AGAIN,
        )


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
    return EngineError(f"a kit must hold a {what}", found=f"none that can be read: {path}", remedy=_AGAIN)
