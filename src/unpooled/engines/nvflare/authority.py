"""The consortium's authority: its root certificate, and the certificates that it signs for the parties."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID
from nvflare.lighter.utils import Identity as Subject
from nvflare.lighter.utils import generate_cert, generate_keys, serialize_pri_key

from unpooled.engines.nvflare.consortium import Identity
from unpooled.errors import ResultsError

KEY, ROOT = "rootCA.key", "rootCA.pem"


class Authority:
    """A root certificate and its key, which signs for everybody whom the coordinator admits."""

    def __init__(self, root: x509.Certificate, key: RSAPrivateKey) -> None:
        self.root, self._key = root, key

    @classmethod
    def new(cls, consortium: str, days: int) -> Authority:
        """An authority for a new consortium, valid for so many days."""
        key, public = generate_keys()
        name = Subject(consortium)
        return cls(generate_cert(name, name, key, public, valid_days=days, ca=True), key)

    @classmethod
    def read(cls, folder: Path) -> Authority:
        """The authority that is kept in a folder."""
        try:
            root = x509.load_pem_x509_certificate((folder / ROOT).read_bytes())
            key = load_pem_private_key((folder / KEY).read_bytes(), password=None)
            if isinstance(key, RSAPrivateKey) and key.public_key() == root.public_key():
                return cls(root, key)
        except (OSError, ValueError, TypeError):
            pass
        raise ResultsError(
            "the coordinator's folder must hold the consortium's authority",
            found=f"no root certificate with its key in {folder}",
            remedy="restore both files, or create a new consortium",
        )

    def files(self) -> dict[str, bytes]:
        """The files of the folder in which it is kept."""
        return {ROOT: pem(self.root), KEY: key_pem(self._key)}

    def certify(self, identity: Identity, public: RSAPublicKey, role: str = "") -> x509.Certificate:
        """A certificate that is valid for as long as the root is; the coordinator's names its host."""
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        own = x509.KeyUsage(
            digital_signature=True,
            content_commitment=True,
            key_encipherment=True,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=False,
            crl_sign=False,
            encipher_only=False,
            decipher_only=False,
        )
        return generate_cert(
            Subject(identity.name, identity.organisation, role),
            Subject(identity.consortium),
            self._key,
            public,
            server_default_host=identity.host if identity.name == identity.host else None,
            not_valid_before=self.root.not_valid_before_utc,
            not_valid_after=self.root.not_valid_after_utc,
            # A site's processes speak TLS to each other with the same certificate, at both ends.
            extra_extensions=[
                (x509.BasicConstraints(ca=False, path_length=None), True),
                (own, True),
                (x509.ExtendedKeyUsage(usages), False),
            ],
        )


def new_key() -> RSAPrivateKey:
    """A key of the kind that NVIDIA FLARE needs."""
    return generate_keys()[0]


def key_pem(key: RSAPrivateKey) -> bytes:
    return serialize_pri_key(key)


def pem(signed: x509.Certificate | x509.CertificateSigningRequest) -> bytes:
    return signed.public_bytes(Encoding.PEM)
