"""Real numbers as integers of several 64-bit words, whose sums modulo 2^(64 × words) are exact.

Sums of such numbers do not depend on their order, so that masks which cancel in the sum leave nothing behind.
A number out of range is never clipped or wrapped: `to_words` raises `OutOfRange`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgpack
import numpy as np

from unpooled.errors import MessageError
from unpooled.protocol.records import Record

WORD = 64
USED = WORD - 2
"""Bits of the first word that a sum may use; the other two are its sign and a reserve."""


WORDS = (1, 2, 4)
"""How many words a number may have."""
FURTHEST, MOST_TERMS = 500, 10**12
"""Bounds of the exponent and of the number of terms."""
PER_PERSON = 2.0**10
"""Largest mean over people of a statistic in standard units, for numbers in one word."""
WIDER = 2.0**40
"""How much larger numbers may be if they are written in two words."""
LARGEST_RAW = 1e30
"""Largest sum of squares of columns in their own units, for which nothing is known before the sites agree."""


class OutOfRange(Exception):
    """A number is too large for its scale."""


@dataclass(frozen=True)
class Scale(Record):
    """How numbers are written: in `words` words, of which the first counts multiples of 2^exponent.

    >>> scale = Scale(words=1, exponent=-40, terms=3)
    >>> numbers = np.array([0.5, -3.25, 1e5])
    >>> from_words(to_words(numbers, scale), scale)
    array([ 5.00e-01, -3.25e+00,  1.00e+05])
    """

    words: int
    exponent: int
    terms: int
    """How many numbers are added up."""

    @property
    def largest(self) -> float:
        """The largest size of each of the terms."""
        return 2.0 ** (USED + self.exponent) / self.terms

    def packed(self) -> bytes:
        return bytes(msgpack.packb([self.words, self.exponent, self.terms]) or b"")

    @classmethod
    def unpacked(cls, packed: bytes) -> Scale:
        """The scale of a stranger; `MessageError` if it is none."""
        try:
            parts = msgpack.unpackb(packed)
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
            parts = None
        if isinstance(parts, list) and [type(part) for part in parts] == [int, int, int]:
            words, exponent, terms = parts
            if words in WORDS and abs(exponent) <= FURTHEST and 1 <= terms <= MOST_TERMS:
                return cls(words, exponent, terms)
        raise MessageError(
            "a scale must have words, an exponent and a number of terms",
            found="something else",
            remedy="run the same version of unpooled at every party",
        )


def scale_for(largest: float, terms: int, words: int = 1) -> Scale:
    """The finest scale on which each of several terms may be as large as this."""
    return Scale(words, math.ceil(math.log2(largest * terms)) - USED, terms)


def offered(sites: int, people: int | None = None) -> tuple[Scale, ...]:
    """The scales for sums over this many sites and people, the second for numbers too large for the first.

    `people` is None for columns in their own units, before the sites have agreed; the terms of a sum are then
    sites, and afterwards people. A site masks on no other scale: whether a number is out of range would tell
    its size.
    """
    if people is None:
        return (scale_for(LARGEST_RAW, sites, words=4),)
    return scale_for(PER_PERSON, people), scale_for(PER_PERSON * WIDER, people, words=2)


def to_words(numbers: np.ndarray, scale: Scale, terms: int = 1) -> np.ndarray:
    """Finite numbers [n] as words [words, n], the most significant first, negative ones as complements.

    `terms` is how many of the sum's terms each number already is the sum of.
    """
    if not np.all(np.abs(numbers) <= terms * scale.largest):
        raise OutOfRange
    sizes = np.empty((scale.words, len(numbers)), np.uint64)
    rest = np.ldexp(np.abs(numbers), -scale.exponent)
    for place in range(scale.words):
        word = np.rint(rest) if scale.words == 1 else np.floor(rest)
        sizes[place] = word.astype(np.uint64)
        rest = np.ldexp(rest - word, WORD)  # exact
    complements = np.zeros_like(sizes)
    subtract(complements, sizes)
    return np.where(numbers < 0.0, complements, sizes)


def from_words(words: np.ndarray, scale: Scale) -> np.ndarray:
    """The numbers [n] that words stand for."""
    negative = words[0] >> np.uint64(WORD - 1) > 0
    complements = np.zeros_like(words)
    subtract(complements, words)
    sizes = np.where(negative, complements, words)
    parts = [np.ldexp(one.astype(np.float64), scale.exponent - k * WORD) for k, one in enumerate(sizes)]
    return np.where(negative, -1.0, 1.0) * sum(reversed(parts))


def add(total: np.ndarray, more: np.ndarray) -> None:
    """Add words to words, in place."""
    _add(total, more, np.zeros(total.shape[1], np.uint64))


def subtract(total: np.ndarray, less: np.ndarray) -> None:
    """Subtract words from words, in place."""
    _add(total, ~less, np.ones(total.shape[1], np.uint64))


def _add(total: np.ndarray, more: np.ndarray, carry: np.ndarray) -> None:
    for place in reversed(range(len(total))):
        sums = total[place] + more[place]
        over = sums < more[place]
        total[place] = sums + carry
        carry = (over | (total[place] < carry)).astype(np.uint64)
