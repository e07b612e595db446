"""BLAS threads while a study runs."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_info

from unpooled.maths.linear_algebra import one_blas_thread


def _threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_every_blas_has_one_thread_inside_and_its_own_number_again_outside() -> None:
    jnp.linalg.cholesky(jnp.eye(3))  # the BLAS that JAX uses is loaded with its first use
    before = _threads()
    with one_blas_thread():
        assert _threads() == [1] * len(before)
    assert _threads() == before
    assert np.all(np.array(before) >= 1)
