"""Sums over many rows, a block of rows after another.

The intermediate arrays of a block stay in the processor's cache and their memory is used again; those of a
whole table of 100,000 rows would be fetched from the operating system anew in every evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

Shared = TypeVar("Shared")
Rows = TypeVar("Rows")
Result = TypeVar("Result")

BLOCK = 1024
"""Rows of a block."""
FEWEST = 64
"""Tables whose length has no common divisor of at least this size with `BLOCK` are not divided."""


def sum_over_blocks(function: Callable[[Shared, Rows], Result], shared: Shared, rows: Rows) -> Result:
    """Σ function(shared, block) over blocks of rows, for a function whose results are sums over its rows.

    The derivative with respect to `shared` is computed block by block too. All leaves of `rows` have the rows
    as their first axis.
    """
    blocks = _blocks(rows)
    if blocks is None:
        return function(shared, rows)
    # Without a checkpoint, a derivative would keep the intermediate arrays of all blocks.
    of_block = jax.checkpoint(function, prevent_cse=False)

    def add(total: Result, block: Rows) -> tuple[Result, None]:
        return jax.tree.map(jnp.add, total, of_block(shared, block)), None

    shapes = jax.eval_shape(function, shared, jax.tree.map(lambda leaf: leaf[0], blocks))
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return jax.lax.scan(add, nothing, blocks)[0]


def map_over_blocks(function: Callable[[Rows], Result], rows: Rows) -> Result:
    """function(rows), for a function whose results have the rows as their first axis and depend on no other
    row."""
    blocks = _blocks(rows)
    if blocks is None:
        return function(rows)
    found = jax.lax.map(function, blocks)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), found)


def _blocks(rows: PyTree) -> PyTree | None:
    """The leaves as [block, row, …]; None for tables that stay whole."""
    length = len(jax.tree.leaves(rows)[0])
    if length < FEWEST or length % BLOCK:
        return None
    return jax.tree.map(lambda leaf: leaf.reshape(length // BLOCK, BLOCK, *leaf.shape[1:]), rows)
