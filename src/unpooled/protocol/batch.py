"""A batch of θ, one after another in chunks of one size: one compilation serves every batch."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from unpooled.protocol.messages import Tree

CHUNK = 5
"""As many problems as a default fit runs side by side: four folds and the whole."""


def in_chunks(function: Callable[[Tree], Tree], batch: Tree) -> Tree:
    """`function` over a batch, CHUNK at a time, the last chunk filled up with repeats; one θ goes alone."""
    size = len(jax.tree.leaves(batch)[0])
    if size == 1:
        return jax.tree.map(np.asarray, function(batch))
    parts = []
    for start in range(0, size, CHUNK):
        taken = np.minimum(np.arange(start, start + CHUNK), size - 1)
        parts.append(
            jax.tree.map(np.asarray, function(jax.tree.map(lambda leaf, taken=taken: leaf[taken], batch)))
        )
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:size], *parts)
