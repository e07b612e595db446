"""Combine the replies of all sites into one message.

Refusals are raised as errors, and a site whose reply has another shape or non-finite numbers is reported as
lost before anything is summed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import jax
import numpy as np
from jaxtyping import PyTree

from unpooled import errors
from unpooled.errors import FitError, MessageError, Problems, SiteLost
from unpooled.protocol.key_messages import Masked, TooLarge
from unpooled.protocol.masked import unmasked
from unpooled.protocol.messages import Message, Refusal, Replies, Reply


def aggregate(replies: Mapping[str, Reply]) -> Message:
    """Combine replies in the order of the sites; a refusal is raised as the error that it names."""
    _raise_refusals(replies)
    for site, reply in replies.items():
        if isinstance(reply, TooLarge):
            raise FitError(
                "sums must be small enough to be masked",
                found=f"sums at site '{site}' that are far too large",
                remedy="use settings that converge, such as a smaller learning rate",
            )
    first = next(iter(replies.values()))
    if isinstance(first, Masked):
        return aggregate(unmasked(replies))
    if isinstance(first, Replies):
        parts = [
            {site: _part(reply, i) for site, reply in replies.items()} for i in range(len(first.replies))
        ]
        return Replies(tuple(aggregate(part) for part in parts))
    replies = {site: in_double_precision(reply) for site, reply in replies.items()}
    require_alike({site: vars(reply) for site, reply in replies.items() if reply.added})
    return type(first).combine(replies)


def in_double_precision(reply: Reply) -> Reply:
    """The reply with its arrays in double precision; sites with limits send single precision."""

    def widened(leaf: object) -> object:
        if isinstance(leaf, np.ndarray) and leaf.dtype == np.float32:
            return leaf.astype(np.float64)
        return leaf

    return replace(reply, **{name: jax.tree.map(widened, value) for name, value in vars(reply).items()})


def _part(reply: Reply, index: int) -> Reply:
    assert isinstance(reply, Replies)
    part = reply.replies[index]
    assert isinstance(part, Reply)
    return part


def _raise_refusals(replies: Mapping[str, Reply]) -> None:
    """Raise the refusals of all sites together, if they are about their tables or limits; else the first."""
    refusals = {site: reply for site, reply in replies.items() if isinstance(reply, Refusal)}
    if not refusals:
        return
    problems = Problems()
    for site, reply in refusals.items():
        with problems.collected():
            raise _as_error(site, reply)
    problems.raise_all()


def _as_error(site: str, refusal: Refusal) -> errors.UnpooledError:
    kind = getattr(errors, refusal.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, errors.UnpooledError)):
        kind = errors.LimitRefusal
    return kind(refusal.expected, found=f"site '{site}': {refusal.found}", remedy=refusal.remedy)


def require_alike(trees: Mapping[str, PyTree]) -> None:
    """Check that all sites sent the same shapes and finite numbers; raise `SiteLost` for a deviating site."""
    if len(trees) < 2:
        return
    shapes = {site: _shape(tree) for site, tree in trees.items()}
    (usual, often), *_ = Counter(shapes.values()).most_common()
    others = [site for site, shape in shapes.items() if shape != usual]
    if others and often == 1:
        raise MessageError(
            "all sites must reply with the same shapes",
            found=f"a different shape from each of: {', '.join(trees)}",
            remedy="run the same version of unpooled at every party",
        )
    for site in others:
        raise SiteLost(site, "its reply has another shape than those of the other sites")
    finite = {
        site: np.array([_finite(leaf) for leaf in jax.tree.leaves(tree)]) for site, tree in trees.items()
    }
    # Numbers that are not finite at most sites are left to the method: its step was too long.
    most = np.sum(list(finite.values()), axis=0) * 2 >= len(trees)
    for site, own in finite.items():
        if np.any(most & ~own):
            raise SiteLost(site, "its reply has non-finite numbers where those of other sites are finite")


def _shape(tree: PyTree) -> tuple[str, ...]:
    leaves, structure = jax.tree.flatten(tree)
    return str(structure), *(f"{np.shape(leaf)}{np.asarray(leaf).dtype.kind}" for leaf in leaves)


def _finite(leaf: np.ndarray) -> bool:
    values = np.asarray(leaf)
    return values.dtype.kind != "f" or bool(np.all(np.isfinite(values)))
