"""Sums over blocks of rows are those over all rows, and so are their derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unpooled.maths.blocks import BLOCK, FEWEST, map_over_blocks, sum_over_blocks


def _sums(shared: dict[str, jax.Array], rows: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    values, weights = rows
    features = jnp.sin(values * shared["scale"]) + shared["shift"]
    return (features * weights[:, None]).T @ features, jnp.sum(jnp.exp(features) * weights[:, None])


@pytest.mark.parametrize("length", [FEWEST // 2, FEWEST, 5 * BLOCK, FEWEST + 1])
def test_blocks_add_up_to_the_whole(length: int) -> None:
    rng = np.random.default_rng(2)
    rows = jnp.asarray(rng.standard_normal((length, 3))), jnp.asarray(rng.random(length))
    shared = {"scale": jnp.array([0.5, 1.0, 2.0]), "shift": jnp.array(0.3)}

    def total(of, shared):
        gram, other = of(shared)
        return jnp.sum(gram * jnp.arange(9.0).reshape(3, 3)) + other

    whole, divided = (
        jax.value_and_grad(lambda shared, of=of: total(of, shared))(shared)
        for of in (lambda shared: _sums(shared, rows), lambda shared: sum_over_blocks(_sums, shared, rows))
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11), whole, divided)


def test_a_large_table_is_divided() -> None:
    def length_seen(_: jax.Array, rows: jax.Array) -> jax.Array:
        return jnp.full((), float(len(rows)))

    assert float(sum_over_blocks(length_seen, jnp.zeros(()), jnp.zeros(8 * BLOCK))) == 8 * BLOCK
    seen = map_over_blocks(lambda rows: jnp.full(len(rows), len(rows)), jnp.zeros(8 * BLOCK))
    assert set(np.asarray(seen)) == {BLOCK}


@pytest.mark.parametrize("length", [100, 8 * BLOCK])
def test_results_by_row_keep_their_order(length: int) -> None:
    values = jnp.arange(2.0 * length).reshape(length, 2)
    found = map_over_blocks(
        lambda rows: {"sum": rows["x"].sum(axis=1), "twice": 2.0 * rows["x"]}, {"x": values}
    )
    np.testing.assert_array_equal(found["sum"], values.sum(axis=1))
    np.testing.assert_array_equal(found["twice"], 2.0 * values)
