"""A site's identity: a key that is made in the site's folder, stays there, and signs for the site."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from unpooled.disclosure.private_files import own
from unpooled.errors import ResultsError
from unpooled.site.private_files import keeping

FILE = "identity.key"


def create_identity(path: Path) -> None:
    """Make a new identity, unless the file exists."""
    if path.exists():
        return
    with keeping(path), open(path, "xb", opener=own) as file:
        file.write(Ed25519PrivateKey.generate().private_bytes_raw())


def read_identity_key(path: Path) -> Ed25519PrivateKey:
    """The identity of the site in whose folder the file is."""
    try:
        return Ed25519PrivateKey.from_private_bytes(path.read_bytes())
    except OSError:
        found = f"no readable {path.name} in {path.parent}"
    except ValueError:
        found = f"another file: {path}"
    raise ResultsError(
        "a site's folder must hold the site's own identity",
        found=found,
        remedy="restore it; the folder of an earlier version has none: join again with a new invitation",
    )


def public_identity(path: Path) -> bytes:
    """The public part, which other sites know."""
    return read_identity_key(path).public_key().public_bytes_raw()
