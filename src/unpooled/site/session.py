"""A site's part in sums of which nobody sees the terms: masks that cancel in the sum over all sites.

For every run, each site makes a new key, signs it with its identity, and agrees on a secret with each other
site (X25519). From the secret of a pair follows a stream of random words for every question (HKDF, ChaCha20).
One site of the pair adds it to its numbers and the other one subtracts it. The stream depends on the part of
the question that is the same for all sites, so that the masks of sites that were asked different things do
not cancel.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgpack
import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from unpooled.errors import ApprovalError, MessageError
from unpooled.protocol.codec import encode
from unpooled.protocol.fixed_point import OutOfRange, Scale, add, subtract
from unpooled.protocol.key_messages import Introduction, Masked, TooLarge
from unpooled.protocol.masked import masked
from unpooled.protocol.messages import Question, Reply

LEAST_SITES = 3
"""With two sites, each knows the numbers of the other from the sum."""
WORD_BYTES = 8


@dataclass
class Party:
    """One site among the sites of a study: its identity, and the sites that it accepts."""

    name: str
    study: str
    """The hash of the study."""
    identity: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate, repr=False)
    known: Mapping[str, bytes] | None = None
    """The public identities of the other sites, as the custodian has approved them; None accepts any."""
    _made: tuple[tuple[str, ...], X25519PrivateKey, Introduction] | None = field(default=None, repr=False)

    def introduce(self, sites: tuple[str, ...]) -> Introduction:
        """A new key for a run with these sites, signed."""
        self._require_sites(sites)
        key = X25519PrivateKey.generate()
        public = key.public_key().public_bytes_raw()
        signed = self.identity.sign(_statement(self.study, self.name, sites, public))
        made = Introduction(public, self.identity.public_key().public_bytes_raw(), signed)
        self._made = sites, key, made
        return made

    def meet(self, introductions: Mapping[str, Introduction]) -> Session:
        """Agree on a secret with each of the other sites."""
        if self._made is None:
            raise _unmet("a question before `Introduce`")
        sites, key, own = self._made
        if set(introductions) != set(sites) or introductions.get(self.name) != own:
            raise _unmet("keys of other sites, or another key of this site")
        for name, one in introductions.items():
            self._verify(name, sites, one)
        if len({one.key for one in introductions.values()}) < len(sites):
            raise _unmet("one key for two sites")
        everybody = [[name, one.key, one.identity] for name, one in sorted(introductions.items())]
        run = hashlib.sha256(_packed([self.study, everybody])).digest()
        secrets = {
            name: _secret(key, one.key, run) for name, one in introductions.items() if name != self.name
        }
        self._made = None  # one key, one session
        return Session(self.name, run, secrets)

    def mark(self, table: bytes) -> bytes:
        """A tag of the own table for nobody else, which shows whether a restarted site has another one."""
        return hmac.digest(self.identity.private_bytes_raw(), b"unpooled table" + table, "sha256")

    def _require_sites(self, sites: tuple[str, ...]) -> None:
        named = isinstance(sites, tuple) and all(isinstance(name, str) for name in sites)
        if not named or len(set(sites)) != len(sites) or self.name not in sites:
            raise _unmet("no list of sites with this one among them")
        if self.known is not None:
            strangers = [name for name in sites if name != self.name and name not in self.known]
            if strangers:
                raise ApprovalError(
                    "a study may only have sites that the custodian has seen",
                    found=f"a site that was not approved: {strangers[0][:100]!r}",
                    remedy="review the study again, with the list of all sites",
                )

    def _verify(self, name: str, sites: tuple[str, ...], one: Introduction) -> None:
        expected = None if self.known is None or name == self.name else self.known[name]
        try:
            if expected is not None and not hmac.compare_digest(expected, one.identity):
                raise InvalidSignature
            identity = Ed25519PublicKey.from_public_bytes(one.identity)
            identity.verify(one.signature, _statement(self.study, name, sites, one.key))
        except (InvalidSignature, ValueError, TypeError, AttributeError):
            raise ApprovalError(
                "every site must prove its identity",
                found=f"a key that '{name[:100]}' has not signed, or another identity than was approved",
                remedy="compare the fingerprints of the sites by telephone; if they are right, this may be "
                "an attack: tell all custodians",
            ) from None


@dataclass
class Session:
    """The secrets of one site in one run. A restarted site needs a new one."""

    name: str
    run: bytes
    """A digest of the keys of all sites."""
    secrets: dict[str, bytes] = field(repr=False)
    """The secret that is shared with each other site."""
    _last: tuple[int, bytes] = field(default=(0, b""), repr=False)
    """The last round, and a digest of its question."""

    @property
    def masks(self) -> bool:
        """Whether sums are masked, which needs three sites."""
        return len(self.secrets) + 1 >= LEAST_SITES

    def tags(self, table: bytes) -> dict[str, bytes]:
        """A tag of the own table for each other site, which is equal to theirs if the tables are."""
        return {
            name: hmac.digest(secret, b"table" + table, "sha256") for name, secret in self.secrets.items()
        }

    def hide(
        self,
        reply: Reply,
        question: Question,
        number: int,
        scale: Scale,
        people: int = 1,
        differs: Callable[[str], bool] = lambda stage: True,
    ) -> Reply:
        """The reply with masks on all numbers of which only the sum is needed, which are sums over people.

        In each round one question is answered: two answers with the same masks would reveal their difference.
        `differs` says of which stages sites may be asked about different parameters.
        """
        own = hashlib.sha256(encode(question)).digest()
        if number < self._last[0] or (number == self._last[0] and own != self._last[1]):
            raise _unmet("a second question in the same round")
        self._last = number, own
        try:
            found = masked(reply, scale, people)
        except OutOfRange:
            return TooLarge()
        if found is None:
            return reply
        self._mask(found, question.common(differs), number)
        return found

    def _mask(self, found: Masked, question: Question, number: int) -> None:
        common = hashlib.sha256(encode(question)).digest()
        scale = found.scale
        context = _packed([number, common, scale.words, scale.exponent, scale.terms])
        for name, secret in self.secrets.items():
            stream = _stream(secret, context, found.words.size).reshape(found.words.shape)
            (add if self.name < name else subtract)(found.words, stream)


def _statement(study: str, name: str, sites: tuple[str, ...], key: bytes) -> bytes:
    """What an introduction signs."""
    return _packed(["unpooled introduction", study, name, list(sites), key])


def _secret(own: X25519PrivateKey, other: bytes, run: bytes) -> bytes:
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise _unmet("a key that is none") from None
    return HKDF(SHA256(), length=32, salt=run, info=b"unpooled masks").derive(shared)


def _stream(secret: bytes, context: bytes, words: int) -> np.ndarray:
    key = HKDFExpand(SHA256(), length=32, info=context).derive(secret)
    cipher = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(WORD_BYTES * words)), "<u8")


def _packed(parts: list[object]) -> bytes:
    return bytes(msgpack.packb(parts) or b"")


def _unmet(found: str) -> MessageError:
    return MessageError(
        "sites must first exchange keys for this run",
        found=found,
        remedy="run the same version of unpooled everywhere, and start the study again",
    )
