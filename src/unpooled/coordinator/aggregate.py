"""Replies of all sites into one: sums where sums suffice, stacks where the study says so."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import jax
import numpy as np

from unpooled import errors
from unpooled.coordinator.alike import require_alike
from unpooled.protocol.messages import Gradient, Message, Refusal, Replies, Statistics, Tree


def aggregate(replies: Mapping[str, Message]) -> Tree:
    """One tree from the replies, in the sites' order; a refusal becomes the error it names."""
    for site, reply in replies.items():
        if isinstance(reply, Refusal):
            raise _as_error(site, reply)
    first = next(iter(replies.values()))
    parts = list(replies.values())
    if isinstance(first, Replies):
        return tuple(
            aggregate({site: reply.replies[i] for site, reply in replies.items()})  # type: ignore[attr-defined]
            for i in range(len(first.replies))
        )
    require_alike({site: vars(reply) for site, reply in replies.items() if _added(reply)})
    if isinstance(first, Statistics):
        return {"total": _sum([p.total for p in parts]), "each": _stack([p.each for p in parts])}  # type: ignore[attr-defined]
    if isinstance(first, Gradient):
        return {"total": _sum([p.total for p in parts]), "value": _sum([p.value for p in parts])}  # type: ignore[attr-defined]
    return {site: vars(reply) for site, reply in replies.items()}


def _added(reply: Message) -> bool:
    return isinstance(reply, Statistics | Gradient)


def _sum(trees: list[Tree]) -> Tree:
    return reduce(lambda left, right: jax.tree.map(np.add, left, right), trees)


def _stack(trees: list[Tree]) -> Tree:
    # The batch of θ leads, sites come second: [batch, site, …].
    return jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *trees)


def _as_error(site: str, refusal: Refusal) -> errors.UnpooledError:
    kind = getattr(errors, refusal.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, errors.UnpooledError)):
        kind = errors.LimitRefusal
    return kind(refusal.expected, found=f"site '{site}': {refusal.found}", remedy=refusal.remedy)
