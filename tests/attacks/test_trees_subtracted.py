"""A coordinator subtracts the sums of a tree's levels from each other, to be left with few people."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unpooled.maths.trees import BINS, GRID, cell_bits
from unpooled.methods.causal_forest.stages import Outcome
from unpooled.models.trees import Level, Values
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import Rows, make_rows

pytestmark = pytest.mark.slow

TREES, DEPTH, FEATURES, PEOPLE, LEAST = 10, 4, 3, 150, 5.0


def rows(least: float) -> Rows:
    random = np.random.default_rng(4)
    covariates = random.normal(size=(PEOPLE, FEATURES)) * [1.0, 3.0, 0.5]
    treatment = random.integers(0, 2, PEOPLE).astype(float)
    outcome = random.normal(size=PEOPLE)
    return make_rows(covariates, treatment, outcome, fold=np.zeros(PEOPLE), site=0, salt=2**40, least=least)


def replies(least: float) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """The histograms of every level of trees whose cuts are chosen by the attacker: sums by outcome, and
    people, [tree, feature, cell, 2]."""
    random = np.random.default_rng(1)
    edges = np.sort(random.integers(60, 200, (FEATURES, BINS - 1)), axis=1)
    shape = (TREES, 2**DEPTH - 1)
    feature, cut = random.integers(0, FEATURES, shape), random.integers(4, BINS - 4, shape)
    stage = Level(Outcome(), TREES, DEPTH)
    tried = np.tile(np.arange(FEATURES), (TREES, 1))
    key = jax.random.key_data(jax.random.key(3))
    found = []
    for level in range(DEPTH):
        # A level of cells is as fine as that of the cut, which the cells of its node must not straddle.
        width = max(BINS >> max(cell_bits(DEPTH) - level, 0), 1)
        places = slice(2**level - 1, 2 ** (level + 1) - 1)
        cut[:, places] = (cut[:, places] // width + 1) * width - 1
        fixed = {
            "edges": edges, "feature": feature, "cut": cut, "tried": tried, "key": key,
            "level": jnp.asarray(level),
        }  # fmt: skip
        sums = eqx.filter_jit(stage.statistics)(Parameters(fixed=fixed), rows(least)).summed["sums"]
        found.append(np.asarray(sums))
    return found, feature, cut


def people_left(found: list[np.ndarray], feature: np.ndarray, cut: np.ndarray) -> list[float]:
    """How many people are left of one side of a node, when what its child tells is subtracted."""
    left = []
    for level in range(DEPTH - 1):
        stride, below = (2 ** cell_bits(DEPTH) >> one for one in (level, level + 1))
        for tree in range(TREES):
            for node in range(2**level):
                place = 2**level - 1 + node
                own = found[level][tree, feature[tree, place], node * stride : (node + 1) * stride, 1]
                width = BINS // min(stride, BINS)
                edge = (cut[tree, place] + 1) // width
                sides = own[:edge].sum(), own[edge:].sum()
                for side, number in enumerate(sides):
                    child = (2 * node + side) * below
                    for column in range(FEATURES):
                        told = found[level + 1][tree, column, child : child + below, 1].sum()
                        # A child that is not told leaves the side itself, which is told anyway.
                        left.append(0.0 if told == 0.0 else abs(number - told))
    return left


def test_nobody_is_left_of_one_level_minus_the_next() -> None:
    found, feature, cut = replies(LEAST)
    assert max(people_left(found, feature, cut)) == 0.0
    told = np.concatenate([one[..., 1].ravel() for one in found])
    assert np.all(told[told > 0.0] > LEAST)
    assert np.sum(told > 0.0) > 100


def test_without_limits_cells_have_single_people() -> None:
    found, _, _ = replies(0.0)
    told = np.concatenate([one[..., 1].ravel() for one in found])
    assert np.sum(told == 1.0) > 100


def test_nobody_is_told_by_counts_of_values() -> None:
    stage = Values()
    counts = np.asarray(
        stage.statistics(Parameters(fixed={"all": np.zeros(())}), rows(LEAST)).summed["counts"]
    )
    assert counts.shape == (FEATURES, len(GRID) + 1)
    assert counts.sum(axis=1).tolist() == [PEOPLE] * FEATURES
    assert np.all(counts[counts > 0.0] > LEAST)


def test_who_is_in_a_tree_depends_on_the_secret_of_the_site() -> None:
    one, other = rows(0.0), eqx.tree_at(lambda r: r.salt, rows(0.0), jnp.asarray(2**41))
    target, key = Outcome(), jax.random.key_data(jax.random.key(3))
    values = [
        np.asarray(target.of_tree(target.prepared(Parameters(fixed={"key": key}), each, None), 0, each))[:, 1]  # pyright: ignore
        for each in (one, other)
    ]
    share = np.mean(values[0][:PEOPLE] == values[1][:PEOPLE])
    assert 0.3 < share < 0.7
