"""BLAS threads while a study runs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_info

from unpooled.maths.linear_algebra import one_blas_thread, weighted_gram


def _threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_every_blas_has_one_thread_inside_and_its_own_number_again_outside() -> None:
    jnp.linalg.cholesky(jnp.eye(3))  # the BLAS that JAX uses is loaded with its first use
    before = _threads()
    with one_blas_thread():
        assert _threads() == [1] * len(before)
    assert _threads() == before
    assert np.all(np.array(before) >= 1)


def test_weighted_grams_and_their_derivative_are_those_of_the_plain_formula() -> None:
    rng = np.random.default_rng(4)
    weights, features = rng.random((2, 9)), rng.normal(size=(9, 4))
    cotangent = rng.normal(size=(2, 4, 4))

    def plain(features: jax.Array) -> jax.Array:
        return jnp.einsum("an,nf,ng->afg", weights, features, features)

    found, back = jax.vjp(lambda f: weighted_gram(jnp.asarray(weights), f), jnp.asarray(features))
    expected, expected_back = jax.vjp(plain, jnp.asarray(features))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(back(cotangent)[0], expected_back(cotangent)[0], rtol=1e-12)
