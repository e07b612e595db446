"""A batch of θ, one after another in chunks of one size: one compilation serves every batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

T = TypeVar("T")
CHUNK = 16
"""θ of one call: a few folds leave most of it empty at no cost, a Hessian fills it several times."""


def one_by_one(function: Callable[..., T], batch: PyTree, *shared: Any) -> T:
    """`function(θ, *shared)` for each θ of a batch, compiled together; `function` is a module's own."""
    size = len(jax.tree.leaves(batch)[0])
    parts = []
    for start in range(0, size, CHUNK):
        taken = np.minimum(np.arange(start, start + CHUNK), size - 1)
        chunk = jax.tree.map(lambda leaf, taken=taken: np.asarray(leaf)[taken], batch)
        count = min(CHUNK, size - start)
        found = _compiled(function, chunk, np.asarray(count), shared)
        parts.append(jax.tree.map(lambda leaf, count=count: np.asarray(leaf)[:count], found))
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


# A loop, not vmap: memory stays that of one θ (docs/decisions/0004). Its length is a number, not a
# shape, so a chunk that is not full costs no more than the θ in it.
@partial(jax.jit, static_argnums=0)
def _compiled(function: Callable[..., T], chunk: PyTree, count: Array, shared: tuple[Any, ...]) -> T:
    def compute(index: Array | int) -> T:
        return function(jax.tree.map(lambda leaf: leaf[index], chunk), *shared)

    def step(index: Array, found: T) -> T:
        return jax.tree.map(lambda all_, one: all_.at[index].set(one), found, compute(index))

    shapes = jax.eval_shape(compute, 0)
    empty = jax.tree.map(lambda leaf: jnp.zeros((CHUNK, *leaf.shape), leaf.dtype), shapes)
    return jax.lax.fori_loop(0, count, step, empty)
