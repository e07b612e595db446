"""Evaluate a function over a batch of θ in chunks of a fixed size, so it is compiled only once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from unpooled.maths.compilation import Program

T = TypeVar("T")
CHUNK = 16
"""Number of θ per compiled call. Unused slots cost nothing; a Hessian needs several chunks."""


def one_by_one(function: Callable[..., T], batch: PyTree, *shared: object, often: bool = True) -> T:
    """Evaluate `function(θ, *shared)` for each θ of a batch.

    `function` is a static argument of `jit`, so pass a module-level function: a new lambda recompiles. Unless
    it is evaluated `often`, its program is compiled with less effort.
    """
    program = _often if often else _seldom
    size = len(jax.tree.leaves(batch)[0])
    parts = []
    for start in range(0, size, CHUNK):
        taken = np.minimum(np.arange(start, start + CHUNK), size - 1)
        chunk = jax.tree.map(lambda leaf, taken=taken: np.asarray(leaf)[taken], batch)
        count = min(CHUNK, size - start)
        found = program(function, chunk, np.asarray(count), shared)
        parts.append(jax.tree.map(lambda leaf, count=count: np.asarray(leaf)[:count], found))
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


# A loop rather than vmap keeps the memory use at that of one θ (docs/decisions/0004). The trip count is
# traced, not a shape, so a partly filled chunk costs no more than the θ in it.
def _loop(function: Callable[..., T], chunk: PyTree, count: Array, shared: tuple[object, ...]) -> T:
    # Compiled by itself, the function is traced once for its shapes and for the loop.
    @jax.jit
    def compute(chunk: PyTree, index: Array, shared: tuple[object, ...]) -> T:
        return function(jax.tree.map(lambda leaf: leaf[index], chunk), *shared)

    def step(index: Array, found: T) -> T:
        one = compute(chunk, index, shared)
        return jax.tree.map(lambda all_, new: all_.at[index].set(new), found, one)

    shapes = jax.eval_shape(compute, chunk, count, shared)
    empty = jax.tree.map(lambda leaf: jnp.zeros((CHUNK, *leaf.shape), leaf.dtype), shapes)
    return jax.lax.fori_loop(0, count, step, empty)


_often, _seldom = (Program(_loop, often=often, static_argnums=0) for often in (True, False))
