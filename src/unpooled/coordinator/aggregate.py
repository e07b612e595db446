"""The replies of all sites as one: sums if sums suffice, stacks if the study says so."""

from __future__ import annotations

from collections.abc import Mapping

from unpooled import errors
from unpooled.coordinator.alike import require_alike
from unpooled.protocol.messages import Message, Refusal, Replies, Reply


def aggregate(replies: Mapping[str, Reply]) -> Message:
    """One message from the replies, in the order of the sites; a refusal becomes the error it names."""
    for site, reply in replies.items():
        if isinstance(reply, Refusal):
            raise _as_error(site, reply)
    first = next(iter(replies.values()))
    if isinstance(first, Replies):
        parts = [
            {site: _part(reply, i) for site, reply in replies.items()} for i in range(len(first.replies))
        ]
        return Replies(tuple(aggregate(part) for part in parts))
    require_alike({site: vars(reply) for site, reply in replies.items() if reply.added})
    return type(first).combine(replies)


def _part(reply: Reply, index: int) -> Reply:
    assert isinstance(reply, Replies)
    part = reply.replies[index]
    assert isinstance(part, Reply)
    return part


def _as_error(site: str, refusal: Refusal) -> errors.UnpooledError:
    kind = getattr(errors, refusal.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, errors.UnpooledError)):
        kind = errors.LimitRefusal
    return kind(refusal.expected, found=f"site '{site}': {refusal.found}", remedy=refusal.remedy)
