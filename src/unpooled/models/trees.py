"""Trees in sums: many trees grow by a level in each round, from histograms that are added up over the sites.

A split is chosen from sums over people by node, feature and bin. These add up over sites, so that a tree is
the one that the stacked table would give. A *target* says what is summed: `num` and `den` of every person in
every tree, whose quotient is what a leaf predicts. Bins are chosen from counts of people on a grid that is
the same in every study (`Values`), so that a coordinator has no other cuts to choose from.

People are drawn into trees by a hash of their own row, and by a secret of the site if it has one. So a draw
depends on neither the order of the rows nor, without a secret, the site; who is in a tree is known at the
site only.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unpooled.maths.trees import (
    BINS,
    GRID,
    Tree,
    best_splits,
    binned,
    cell_bits,
    cells,
    edges_of,
    grid_cells,
    histogram,
    leaves,
    nodes,
)
from unpooled.optimise.procedure import Procedure, ask
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import HALF, Rows
from unpooled.protocol.stage import ANY, Bounds, Stage

MOST_BYTES = 10_000_000
"""Most bytes of the histograms of one level that a site sends."""
DEEPEST = 7
DIGITS = 1e6
"""Values are rounded to the sixth digit before they are hashed: sums in another order must not matter."""


class Values(Stage):
    """How many people are in each cell of the grid of each feature, from which the bins are chosen."""

    often: ClassVar[bool] = False
    in_batches: ClassVar[bool] = False
    reveals: ClassVar[str] = (
        "for sums over sites: of each covariate, the number of people in each of 256 ranges of values, where "
        "ranges with few people are added to their neighbours"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        cell, bits = grid_cells(rows.covariates), (len(GRID)).bit_length()
        top = jnp.zeros((), int)
        return Statistics({"counts": histogram(cell, rows.people[:, None], top, bits, rows.least)[..., 0]})

    def bounds(self) -> Bounds:
        return {"all": (0.0, 0.0)}


def agree_on_bins(stage: str = "values") -> Procedure[np.ndarray]:
    """The edges of the bins of all features, in the form in which they are sent."""
    reply = yield from ask(stage, Parameters(fixed={"all": np.zeros(1)}))
    return edges_of(np.asarray(reply.summed["counts"])[0]).reshape(1, -1)


class Target(eqx.Module):
    """What the histograms of a forest are sums of."""

    @abstractmethod
    def prepared(self, parameters: Parameters, rows: Rows, bins: Int[Array, "n d"]) -> Arrays:
        """What all trees need, computed once."""

    @abstractmethod
    def of_tree(self, prepared: Arrays, number: Int[Array, ""], rows: Rows) -> Float[Array, "n 2"]:
        """num and den of everybody in a tree, by its number; 0 for people who are not in it."""

    def bounds(self) -> Bounds:
        return {}


class Level(Stage):
    """Histograms of one level of all trees: sums of num and den by node, feature and bin."""

    target: Target
    trees: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    reveals: ClassVar[str] = (
        "for sums over sites: for each tree, node and some of the covariates, sums of people's residuals and "
        "weights by ranges of the covariate's values, over random people of the site; ranges and nodes with "
        "few people are added to their neighbours or left out"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        fixed, level = parameters.fixed, parameters.fixed["level"]
        bins = bins_of(fixed, rows)
        prepared, bits = self.target.prepared(parameters, rows, bins), cell_bits(self.depth)

        def one(tree: tuple[Array, Tree, Array]) -> Array:
            number, shape, tried = tree
            values = self.target.of_tree(prepared, number, rows)
            node = nodes(shape, bins, level, values[:, 1], rows.least)
            return histogram(cells(node, bins[:, tried], level, bits), values, level, bits, rows.least)

        shapes = Trees(fixed, self.trees).tree
        tried = fixed["tried"].reshape(self.trees, -1)
        return Statistics({"sums": jax.lax.map(one, (jnp.arange(self.trees), shapes, tried))})

    def bounds(self) -> Bounds:
        return {**TREES, "level": (0.0, self.depth - 1.0), "tried": (0.0, np.inf), **self.target.bounds()}


class Leaves(Stage):
    """Sums of the target by leaf, of people by whom the trees were not grown."""

    target: Target
    trees: int = eqx.field(static=True)
    often: ClassVar[bool] = False
    reveals: ClassVar[str] = (
        "for sums over sites: for each tree and leaf, sums of people's residuals and weights and their "
        "number, over random people of the site; leaves with few people are left out"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        bins = bins_of(parameters.fixed, rows)
        prepared = self.target.prepared(parameters, rows, bins)

        def one(tree: tuple[Array, Tree]) -> Array:
            number, shape = tree
            values, leaf = self.target.of_tree(prepared, number, rows), leaves(shape, bins)
            values = jnp.concatenate([values, (values[:, 1:] > 0.0) * rows.present[:, None]], axis=1)
            empty = jnp.zeros((1 + shape.feature.shape[-1], 3))
            sums = empty.at[leaf].add(values)
            largest = empty[:, 0].at[leaf].max(values[:, 1])
            return jnp.where((sums[:, 1] > rows.least * largest)[:, None], sums, 0.0)

        shapes = Trees(parameters.fixed, self.trees).tree
        return Statistics({"sums": jax.lax.map(one, (jnp.arange(self.trees), shapes))})

    def bounds(self) -> Bounds:
        return {**TREES, **self.target.bounds()}


TREES: Bounds = {
    "edges": (0.0, float(len(GRID))), "feature": (0.0, np.inf), "cut": (0.0, BINS - 1.0), "key": ANY,
}  # fmt: skip
"""Bounds of what describes trees."""


def bins_of(fixed: Arrays, rows: Rows) -> Int[Array, "n d"]:
    return binned(rows.covariates, fixed["edges"].reshape(rows.covariates.shape[1], BINS - 1))


class Trees:
    """Trees as they are sent, with one axis: it is a multiple of five, as no padded table's length is."""

    def __init__(self, sent: Arrays, count: int) -> None:
        self._sent, self._count = sent, count
        self.tree = Tree(sent["feature"].reshape(count, -1), sent["cut"].reshape(count, -1))

    @property
    def leaves(self) -> int:
        return self.tree.feature.shape[1] + 1

    def leaf(self, name: str) -> Float[Array, "t l"]:
        """A value of every leaf."""
        return self._sent[name].reshape(self._count, self.leaves)


def hashed(rows: Rows) -> Int[Array, " n"]:
    """A number of 32 bits for everybody, from their row alone."""
    values = jnp.concatenate([rows.covariates, rows.treatment[:, None], rows.outcome[:, None]], axis=1)
    whole = jnp.round(values * DIGITS).astype(jnp.int64).astype(jnp.uint32)

    def mix(state: Array, column: Array) -> tuple[Array, None]:
        state = (state ^ column) * jnp.uint32(0x85EBCA6B)
        state = (state ^ (state >> 15)) * jnp.uint32(0xC2B2AE35)
        return state ^ (state >> 13), None

    return jax.lax.scan(mix, jnp.full(len(values), 0x9E3779B9, jnp.uint32), whole.T)[0]


def drawn(key: Array, rows: Rows, people: Int[Array, " n"], number: Int[Array, ""]) -> Float[Array, " n"]:
    """A uniform number for everybody, by the hashes of their rows."""
    secret = rows.salt >= HALF
    key = jax.random.wrap_key_data(key)
    own = jax.lax.cond(
        secret, lambda: jax.random.key_data(rows.own_key(key)), lambda: jax.random.key_data(key)
    )
    mixed = jax.random.fold_in(jax.random.wrap_key_data(own), number)
    return jax.vmap(lambda one: jax.random.uniform(jax.random.fold_in(mixed, one)))(people)


@dataclass(frozen=True)
class Plan:
    """How a forest grows."""

    trees: int
    depth: int
    features: int
    smallest: float
    """Smallest den on either side of a split, as a share of that of all people in the tree."""

    @property
    def tried(self) -> int:
        """Number of features that a level of a tree may be split by: √d + 20, or as many as `MOST_BYTES`
        allow."""
        affordable = MOST_BYTES // self.bytes_of_feature
        return max(1, min(self.features, math.isqrt(self.features) + 20, affordable))

    @property
    def bytes_of_feature(self) -> int:
        """Bytes of the histograms of one feature, of a level of all trees."""
        return self.trees * 2 ** cell_bits(self.depth) * 2 * 8


def depth_for(people: float, leaf: float) -> int:
    """The depth at which leaves have about `leaf` people, if it is not too large.

    >>> [depth_for(people, 5) for people in (30, 225, 1000, 100_000)]
    [2, 5, 7, 7]
    """
    return max(2, min(DEEPEST, math.floor(math.log2(max(people / leaf, 1.0)))))


@dataclass(frozen=True)
class Grown:
    """Trees [tree, node], and the sums [tree, leaf, 2] of the people by whom they were grown."""

    tree: Tree
    sums: np.ndarray

    def parameters(self) -> Arrays:
        """The trees as they are sent: copies, because they go on growing."""
        return {name: np.array(getattr(self.tree, name)).reshape(1, -1) for name in ("feature", "cut")}


def grow(stage: str, plan: Plan, fixed: Arrays, rng: np.random.Generator) -> Procedure[Grown]:
    """Grow all trees, a level in each round; `fixed` are parameters of the target, edges and key."""
    shape = (plan.trees, 2**plan.depth - 1)
    feature, cut = np.zeros(shape, int), np.full(shape, BINS - 1)
    tree = Tree(feature, cut)
    sums, fewest = np.zeros((plan.trees, 1, 2)), np.zeros((plan.trees, 1))
    for level in range(plan.depth):
        tried = rng.permuted(np.tile(np.arange(plan.features), (plan.trees, 1)), axis=1)[:, : plan.tried]
        own = {**Grown(tree, sums).parameters(), "tried": tried.reshape(1, -1), "level": np.array([level])}
        reply = yield from ask(stage, Parameters(fixed={**fixed, **own}))
        histograms = np.asarray(reply.summed["sums"], float)[0]
        if level == 0:
            fewest = plan.smallest * histograms[:, 0, :, 1].sum(axis=1, keepdims=True)
        found = best_splits(histograms, tried, level, fewest)
        places = slice(2**level - 1, 2 ** (level + 1) - 1)
        feature[:, places], cut[:, places] = found.feature, found.cut
        sums = found.sums.reshape(plan.trees, -1, 2)
    return Grown(tree, sums)


def leaf_sums(stage: str, grown: Grown, fixed: Arrays) -> Procedure[np.ndarray]:
    """Sums [tree, leaf, 3] of num, den and people who did not grow the trees."""
    reply = yield from ask(stage, Parameters(fixed={**fixed, **grown.parameters()}))
    return np.asarray(reply.summed["sums"], float)[0]


def votes(
    tree: Tree,
    values: Float[Array, "t l v"],
    bins: Int[Array, "n d"],
    used: Callable[[Array], Float[Array, " n"]],
) -> Float[Array, "n v"]:
    """Sums over trees of the values of everybody's leaf, of the trees that `used` says by their number."""

    def add(total: Array, one: tuple[Array, Tree, Array]) -> tuple[Array, None]:
        number, shape, of_leaf = one
        return total + used(number)[:, None] * of_leaf[leaves(shape, bins)], None

    empty = jnp.zeros((len(bins), values.shape[-1]))
    return jax.lax.scan(add, empty, (jnp.arange(len(values)), tree, values))[0]
