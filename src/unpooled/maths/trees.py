"""Binary trees of one depth, and histograms of sums over people by node, feature and bin.

The inner nodes of a tree of depth D are numbered level by level from 0, so that node k has the children
2k + 1 and 2k + 2. Node k sends people whose bin of `feature[k]` is at most `cut[k]` to the left. A node that
is not split has the last bin for its cut: everybody goes to the left. There are 2^D leaves.

A feature has `BINS` bins. A histogram has a fixed number of cells for each feature, which the nodes of a
level share: the more nodes, the wider the bins. So one program serves all levels.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

BIN_BITS = 5
BINS = 2**BIN_BITS
"""Number of bins of each feature."""
LAST_BITS = 3
"""Nodes of the last level that is split have 2 to this power bins."""
_GRID_CELLS = 256
_REACH, _BEND = 8.0, 4.0
GRID = _REACH * np.sinh(_BEND * np.linspace(-1.0, 1.0, _GRID_CELLS - 1)) / np.sinh(_BEND)
"""Values, in standard units, between which the bins of a feature are chosen; dense around the mean."""
TIED = 1e-9
"""Splits whose gains differ by a smaller share are ties, of which the first wins, so that rounding does not
decide."""


def cell_bits(depth: int) -> int:
    """Logarithm to base 2 of the number of cells of each feature in a histogram.

    >>> [2 ** cell_bits(depth) for depth in (2, 3, 5)]
    [32, 32, 128]
    """
    return max(BIN_BITS, depth - 1 + LAST_BITS)


def grid_cells(values: Float[Array, "n d"]) -> Int[Array, "n d"]:
    """In which cell of the grid each value is, from 0 to 255."""
    return jnp.searchsorted(jnp.asarray(GRID), values)


def edges_of(counts: np.ndarray) -> np.ndarray:
    """The edges [feature, bin − 1] of bins with about as many people each, from counts [feature, cell].

    The number of a value's bin is that of the edges below its cell of the grid. Edges of a feature with few
    values coincide.

    >>> counts = np.zeros((1, 256))
    >>> counts[0, [100, 140]] = 30, 10
    >>> np.unique(edges_of(counts)).tolist()
    [100, 140]
    """
    shares = np.cumsum(counts, axis=1) / np.maximum(counts.sum(axis=1, keepdims=True), 1e-300)
    wanted = np.arange(1, BINS) / BINS
    # The first cell up to which at least the wanted share of people are.
    return np.minimum((shares[:, None] < wanted[:, None] - TIED).sum(axis=2), counts.shape[1] - 1)


def binned(values: Float[Array, "n d"], edges: Int[Array, "d e"]) -> Int[Array, "n d"]:
    """Everybody's bin of each feature."""
    return jnp.sum(grid_cells(values)[:, :, None] > edges, axis=2)


class Tree(NamedTuple):
    """The inner nodes of one tree, or of several along a first axis."""

    feature: Int[Array, "*t k"] | Int[np.ndarray, "*t k"]
    cut: Int[Array, "*t k"] | Int[np.ndarray, "*t k"]


def leaves(tree: Tree, bins: Int[Array, "n d"]) -> Int[Array, " n"]:
    """The leaf of everybody in one tree."""
    depth = (tree.feature.shape[-1] + 1).bit_length() - 1
    node = jnp.zeros(len(bins), int)
    for level in range(depth):
        node = _next(tree, 2**level - 1 + node, node, bins)
    return node


def _next(tree: Tree, place: Array, node: Array, bins: Array) -> Array:
    value = jnp.take_along_axis(bins, tree.feature[place][:, None], axis=1)[:, 0]
    return 2 * node + (value > tree.cut[place])


def nodes(
    tree: Tree, bins: Int[Array, "n d"], level: Int[Array, ""], counted: Float[Array, " n"], least: float
) -> Int[Array, " n"]:
    """The node of everybody among those of a level that is still to be split.

    With limits, people go where the groups went in which they were counted: see `groups`.
    """
    bits = cell_bits((tree.feature.shape[-1] + 1).bit_length() - 1)

    def step(above: Array, node: Array) -> Array:
        place = (1 << above) - 1 + node
        value = jnp.take_along_axis(bins, tree.feature[place][:, None], axis=1)
        if least:
            cell = cells(node, value, above, bits)
            value = _bin(_grouped(cell, counted, above, bits, least)[0], above, bits)
        return 2 * node + (value[:, 0] > tree.cut[place])

    return jax.lax.fori_loop(0, level, step, jnp.zeros(len(bins), int))


def cells(node: Int[Array, " n"], bins: Int[Array, "n m"], level: Array, bits: int) -> Int[Array, "n m"]:
    """Where people are counted in the histogram of each feature: by node, and within it by bin."""
    own = bits - level  # of the cells of one node
    return (node << own)[:, None] + (bins >> jnp.maximum(BIN_BITS - own, 0))


def _bin(cell: Array, level: Array, bits: int) -> Array:
    """The lowest bin that is counted in a cell."""
    own = bits - level
    return (cell & ((1 << own) - 1)) << jnp.maximum(BIN_BITS - own, 0)


def histogram(
    cell: Int[Array, "n m"], values: Float[Array, "n v"], level: Array, bits: int, least: float
) -> Float[Array, "m c v"]:
    """Sums of the values over the people in each cell; the last of the values is how much a person counts.

    With limits, no sum rests on few people: neighbouring cells of a node are added up until none does. A node
    in which there are few people altogether is left out.
    """
    features = jnp.arange(cell.shape[1])
    each = jnp.broadcast_to(values[:, None], (*cell.shape, values.shape[1]))
    if least:
        cell, known = _grouped(cell, values[:, -1], level, bits, least)
        each = each * known[:, :, None]
    empty = jnp.zeros((cell.shape[1], 2**bits, values.shape[1]))
    return empty.at[features, cell].add(each)


def _grouped(
    cell: Int[Array, "n m"], counted: Float[Array, " n"], level: Array, bits: int, least: float
) -> tuple[Int[Array, "n m"], Float[Array, "n m"]]:
    """The first cell of the group in which everybody is counted; 0 for nodes with few people, else 1."""
    features, empty = jnp.arange(cell.shape[1]), jnp.zeros((2**bits, cell.shape[1]))
    each = jnp.broadcast_to(counted[:, None], cell.shape)
    total, largest = empty.at[cell, features].add(each), empty.at[cell, features].max(each)
    start = groups(total, largest, level, bits, least)[cell, features]
    return jnp.maximum(start, 0), (start >= 0).astype(float)


def groups(
    total: Float[Array, "c m"], largest: Float[Array, "c m"], level: Array, bits: int, least: float
) -> Int[Array, "c m"]:
    """Neighbouring cells of a node put together until the sum is more than `least` times its largest term.

    Returns the first cell of the group of each cell. What is left at the end of a node belongs to the group
    before; −1 if there is none, because the node has too few people.
    """
    zeros = jnp.zeros(total.shape[1:])
    none = jnp.full(total.shape[1:], -1)

    def forward(
        state: tuple[Array, ...], cell: tuple[Array, ...]
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        sums, top, start, before, closed = state
        number, added, highest = cell
        first = number % (1 << (bits - level)) == 0
        new = first | closed
        before = jnp.where(first, none, jnp.where(closed, start, before))
        start = jnp.where(new, number, start)
        sums, top = jnp.where(new, zeros, sums) + added, jnp.maximum(jnp.where(new, zeros, top), highest)
        closed = (top > 0.0) & (sums > least * top)
        return (sums, top, start, before, closed), (start, before, closed)

    count = jnp.arange(2**bits)
    begin = (zeros, zeros, none, none, zeros > 0.0)
    start, before, closed = jax.lax.scan(forward, begin, (count, total, largest))[1]

    def backward(state: tuple[Array, Array], cell: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        following, closes = state
        own, closed = cell
        closes = closed | ((following == own) & closes)
        return (own, closes), closes

    closes = jax.lax.scan(backward, (none - 1, zeros > 0.0), (start, closed), reverse=True)[1]
    return jnp.where(closes, start, before)


class Splits(NamedTuple):
    """The best split of every node of a level [tree, node], and the sums on both sides [tree, node, 2, v]."""

    feature: np.ndarray
    cut: np.ndarray
    sums: np.ndarray


def best_splits(found: np.ndarray, tried: np.ndarray, level: int, fewest: np.ndarray) -> Splits:
    """The split of every node that maximises Σ num²/den over its two sides.

    `found` are histograms [tree, tried feature, cell, 2] of num and den over all sites, and `tried` the
    numbers of the features. Both sides have a den of at least `fewest` [tree, 1]; a node without such a
    split, or without one that gains anything, stays as it is.
    """
    trees, features, count, _ = found.shape
    stride = count >> level
    used = min(stride, BINS)
    by_bin = found.reshape(trees, features, 2**level, stride, 2)[..., :used, :]
    left = np.cumsum(by_bin, axis=3)
    total = left[..., -1:, :]
    right = total - left
    enough = np.minimum(left[..., 1], right[..., 1]) >= fewest[:, :, None, None]
    whole = _squared(total)
    gain = np.where(enough, _squared(left) + _squared(right) - whole, -np.inf)
    gain = np.moveaxis(gain, 1, 2).reshape(trees, 2**level, features * used)
    best = gain.max(axis=-1, keepdims=True)
    size = np.abs(whole).max(axis=1)  # gains are compared with the size of what they are a difference of
    place = np.argmax(gain >= best - TIED * (np.abs(best) + size), axis=-1)
    split = best[..., 0] > TIED * (1.0 + size[..., 0])
    which, bin_ = np.divmod(place, used)
    t, k = np.ogrid[:trees, : 2**level]
    sums = np.stack([left[t, which, k, bin_], right[t, which, k, bin_]], axis=2)
    whole_sums = np.stack([total[t, 0, k, 0], np.zeros_like(total[t, 0, k, 0])], axis=2)
    width = BINS // used
    return Splits(
        feature=np.where(split, tried[t, which], 0),
        cut=np.where(split, (bin_ + 1) * width - 1, BINS - 1),
        sums=np.where(split[..., None, None], sums, whole_sums),
    )


def _squared(sums: np.ndarray) -> np.ndarray:
    """num²/den, 0 without people."""
    den = sums[..., 1]
    return np.where(den > 0.0, sums[..., 0] ** 2 / np.where(den > 0.0, den, 1.0), 0.0)
