"""Take the numbers of which only a sum is needed out of a reply, and put sums back in their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import numpy as np

from unpooled.errors import SiteLost
from unpooled.protocol.fixed_point import Scale, add, from_words, to_words
from unpooled.protocol.key_messages import Masked
from unpooled.protocol.messages import Message, Replies, Reply
from unpooled.protocol.records import Record

OTHER_SHAPE = "its reply has another shape than those of the other sites"


@dataclass(frozen=True)
class Gap(Record):
    """The place of a masked array."""

    shape: tuple[int, ...]


def masked(reply: Reply, scale: Scale, terms: int = 1) -> Masked | None:
    """The reply without the numbers that are to be masked, and these in fixed point; None if there are none.

    Numbers that are not finite are written as zeros and marked. `OutOfRange` is raised if one is too large.
    """
    taken: list[np.ndarray] = []
    plain = _without(reply, taken)
    if not taken:
        return None
    finite = [_finite(array) for array in taken]
    numbers = [np.where(np.isfinite(array), array, 0.0).ravel() for array in taken]
    return Masked(to_words(np.concatenate(numbers), scale, terms), scale, plain, np.concatenate(finite))


def unmasked(replies: Mapping[str, Reply]) -> dict[str, Reply]:
    """Replies that add up to the sum of the masked ones: the first has the sums, all others have zeros.

    Arrays with numbers that were not finite are NaN at the site that marked them.
    """
    first = next(iter(replies.values()))
    assert isinstance(first, Masked)
    total = np.zeros_like(first.words)
    for site, one in replies.items():
        if not isinstance(one, Masked) or one.scale != first.scale or one.words.shape != total.shape:
            raise SiteLost(site, OTHER_SHAPE)
        add(total, one.words)
    sums = from_words(total, first.scale)
    found: dict[str, Reply] = {}
    for site, one in replies.items():
        assert isinstance(one, Masked)
        found[site] = _Filler(sums, one.finite, site).filled(one.plain)
        sums = np.zeros_like(sums)
    return found


def _without(reply: Message, taken: list[np.ndarray]) -> Message:
    if isinstance(reply, Replies):
        return replace(reply, replies=tuple(_without(part, taken) for part in reply.replies))

    def out(leaf: object) -> Gap:
        taken.append(np.asarray(leaf, np.float64))
        return Gap(taken[-1].shape)

    assert isinstance(reply, Reply)
    return replace(reply, **{name: jax.tree.map(out, getattr(reply, name)) for name in reply.totals})


def _finite(array: np.ndarray) -> np.ndarray:
    return np.asarray(np.isfinite(array).reshape(_by_row(array.shape)).all(axis=1))


def _by_row(shape: tuple[int, ...]) -> tuple[int, int]:
    """The shape of an array as a matrix whose rows are the entries of its first axis."""
    return (shape[0] if shape else 1), int(np.prod(shape[1:]))


class _Filler:
    """Hands out the next numbers in the order in which they were taken."""

    def __init__(self, sums: np.ndarray, finite: np.ndarray, site: str) -> None:
        self._sums, self._finite, self._site = sums, finite, site

    def filled(self, reply: Message) -> Reply:
        if isinstance(reply, Replies):
            return replace(reply, replies=tuple(self.filled(part) for part in reply.replies))
        assert isinstance(reply, Reply)
        filled = {name: jax.tree.map(self._array, getattr(reply, name)) for name in reply.totals}
        return replace(reply, **filled)

    def _array(self, gap: Gap) -> np.ndarray:
        rows, width = _by_row(gap.shape)
        size = rows * width
        if len(self._sums) < size or len(self._finite) < rows:
            raise SiteLost(self._site, OTHER_SHAPE)
        numbers, self._sums = self._sums[:size], self._sums[size:]
        finite, self._finite = self._finite[:rows], self._finite[rows:]
        return np.where(finite[:, None], numbers.reshape(rows, width), np.nan).reshape(gap.shape)
