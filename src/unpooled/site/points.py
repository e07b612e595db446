"""Lists of points of the group ristretto255, one after another in an array of bytes [points, 32].

The group is libsodium's, through the package `rbcl`, which is an optional part of the installation. Its order
is prime, so there are no small subgroups, and each point has one encoding. libsodium refuses what is not the
encoding of a point, and results that are the identity.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from unpooled.errors import EngineError, MessageError

POINT, SCALAR, WIDE = 32, 32, 64
"""Bytes of a point, of a scalar, and of a digest that becomes a point or a scalar."""
CHUNK = 2_000
"""Points that a thread computes at a time."""


@cache
def _sodium() -> Any:
    try:
        from rbcl import _sodium as library  # pyright: ignore[reportAttributeAccessIssue]
    except ImportError:
        raise EngineError(
            "finding people who are at several sites needs the package rbcl",
            found="no such package",
            remedy="pip install 'unpooled[dedupe]', or set duplicates = \"ignore\" under [privacy]",
        ) from None
    with suppress(OSError):  # rbcl has loaded libsodium from a temporary file, and leaves the file behind
        os.unlink(library._name)
    for name, arguments in (
        ("crypto_scalarmult_ristretto255", 3),
        ("crypto_core_ristretto255_from_hash", 2),
        ("crypto_core_ristretto255_scalar_reduce", 2),
        ("crypto_core_ristretto255_scalar_invert", 2),
        ("crypto_core_ristretto255_scalar_mul", 3),
    ):
        getattr(library, name).argtypes = [ctypes.c_void_p] * arguments
    return library


def scalar(secret: bytes) -> bytes:
    """A scalar that follows from a secret.

    >>> len(scalar(b"secret")), scalar(b"secret") == scalar(b"other")
    (32, False)
    """
    made = ctypes.create_string_buffer(SCALAR)
    _sodium().crypto_core_ristretto255_scalar_reduce(made, hashlib.sha512(secret).digest())
    return made.raw


def quotient(above: bytes, below: bytes) -> bytes:
    """The scalar above / below."""
    inverse, made = ctypes.create_string_buffer(SCALAR), ctypes.create_string_buffer(SCALAR)
    if _sodium().crypto_core_ristretto255_scalar_invert(inverse, below) != 0:
        raise ValueError("zero has no inverse")
    _sodium().crypto_core_ristretto255_scalar_mul(made, above, inverse.raw)
    return made.raw


def hashed(digests: np.ndarray) -> np.ndarray:
    """The points that belong to digests [points, 64]; nobody knows their logarithms."""
    function = _sodium().crypto_core_ristretto255_from_hash
    source = np.ascontiguousarray(digests, np.uint8)
    made = np.empty((len(source), POINT), np.uint8)

    def compute(start: int, stop: int) -> bool:
        to, of = made.ctypes.data, source.ctypes.data
        return all(function(to + i * POINT, of + i * WIDE) == 0 for i in range(start, stop))

    _in_parallel(compute, len(source))
    return made


def digests_of(keys: Sequence[str], domain: bytes) -> np.ndarray:
    """A digest [keys, 64] of every key."""
    parts = [hashlib.sha512(domain + key.encode()).digest() for key in keys]
    return np.frombuffer(b"".join(parts), np.uint8).reshape(-1, WIDE)


def raised(points: np.ndarray, exponent: bytes) -> np.ndarray:
    """Every point of a list, raised to a power; an error if one of them is not a point, or the identity."""
    function = _sodium().crypto_scalarmult_ristretto255
    source, held = np.ascontiguousarray(points), ctypes.create_string_buffer(exponent, SCALAR)
    if source.dtype != np.uint8 or source.ndim != 2 or source.shape[1] != POINT:
        raise _no_points("an array of another form")
    made, power = np.empty_like(source), ctypes.addressof(held)

    def compute(start: int, stop: int) -> bool:
        to, of = made.ctypes.data, source.ctypes.data
        places = range(start * POINT, stop * POINT, POINT)
        return all(function(to + place, power, of + place) == 0 for place in places)

    if not _in_parallel(compute, len(source)):
        raise _no_points("a value that encodes no point, or the identity")
    return made


def _in_parallel(compute: Callable[[int, int], bool], count: int) -> bool:
    """Compute all chunks, in threads: libsodium runs without the interpreter's lock."""
    starts = range(0, count, CHUNK)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return all(pool.map(lambda start: compute(start, min(start + CHUNK, count)), starts))


def _no_points(found: str) -> MessageError:
    return MessageError(
        "a list must hold points of the group ristretto255, none of them the identity",
        found=found,
        remedy="run the same version of unpooled everywhere",
    )
