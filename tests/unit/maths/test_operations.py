"""The work of a function, counted from its steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unpooled.maths.operations import RANDOM, operations


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, float)


def test_products_are_counted_by_hand():
    left, right = shape(7, 30, 4), shape(7, 4, 5)
    assert operations(jnp.matmul, left, right).products == 2 * 7 * 30 * 4 * 5
    assert operations(jnp.linalg.cholesky, shape(9, 9)).products == pytest.approx(9**3 / 3)
    solve = operations(lambda a, b: jax.scipy.linalg.solve_triangular(a, b), shape(9, 9), shape(9, 2))
    assert solve.products == 9 * 9 * 2


def test_a_loop_is_counted_as_often_as_it_runs_and_compiled_once():
    def loop(times):
        return operations(
            lambda x: jax.lax.scan(lambda c, _: (c @ x, None), x, None, length=times)[0], shape(6, 6)
        )

    assert loop(10).products == 10 * loop(1).products == 10 * 2 * 6**3
    assert loop(10).steps == loop(1).steps


def test_of_two_branches_the_longer_counts():
    def either(flag, x):
        return jax.lax.cond(flag, lambda: x @ x, lambda: x)

    found = operations(either, jax.ShapeDtypeStruct((), bool), shape(8, 8))
    assert found.products == 2 * 8**3


def test_random_numbers_count_many_times():
    def drawn(key):
        return jax.random.uniform(jax.random.wrap_key_data(key), (1000,))

    assert operations(drawn, np.zeros(2, np.uint32)).numbers > 1000 * RANDOM


def test_no_array_is_made():
    huge = shape(10**9, 100)
    assert operations(lambda x: x.T @ x, huge).products == 2.0 * 10**9 * 100**2


def test_a_gradient_takes_more_than_its_value():
    def value(x):
        return jnp.sum(jnp.exp(x @ x.T))

    one, both = operations(value, shape(20, 3)), operations(jax.grad(value), shape(20, 3))
    assert both.products > 2 * one.products
