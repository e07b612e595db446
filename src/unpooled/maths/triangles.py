"""Symmetric matrices travel as their lower triangle."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def pack(matrix: Array) -> Array:
    """The lower triangle of the last two axes, as one axis."""
    rows, columns = np.tril_indices(matrix.shape[-1])
    return matrix[..., rows, columns]


def unpack(packed: Array) -> Array:
    """The symmetric matrix whose lower triangle is given."""
    size = (int(np.sqrt(8 * packed.shape[-1] + 1)) - 1) // 2
    position = np.zeros((size, size), dtype=int)
    rows, columns = np.tril_indices(size)
    position[rows, columns] = position[columns, rows] = np.arange(len(rows))
    return packed[..., jnp.asarray(position)]
