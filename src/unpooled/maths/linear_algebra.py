"""Triangular solves, packed symmetric matrices, and the number of BLAS threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import scipy.linalg  # noqa: F401  JAX uses SciPy's BLAS, which must be loaded before it can be limited
from jaxtyping import Array
from threadpoolctl import ThreadpoolController

Result = TypeVar("Result")
Packed = TypeVar("Packed", Array, np.ndarray)


def forward(root: Array, right: Array) -> Array:
    """L⁻¹b for a lower triangular L."""
    return jsl.solve_triangular(root, right, lower=True)


def back(root: Array, right: Array) -> Array:
    """L⁻ᵀb for a lower triangular L."""
    return jsl.solve_triangular(root, right, lower=True, trans=1)


def log_diagonal(root: Array) -> Array:
    """log|L|, summed over a stack of triangular matrices."""
    return jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)))


def map_sites(function: Callable[..., Result], *by_site: Array) -> Result:
    """Apply a function to one site after another.

    This is not a vmap: with many sites, jaxlib's batched linear algebra can deadlock on its own threads.
    """
    return jax.lax.map(lambda parts: function(*parts), by_site)


@jax.custom_vjp
def weighted_gram(weights: Array, features: Array) -> Array:
    """Σ_n w_an φ_n φ_nᵀ for several sets of weights [a, n], [a, f, f].

    The derivative is written out: it takes half the products that JAX would compute.
    """
    return jnp.stack([(features * one[:, None]).T @ features for one in weights])


def _gram_forward(weights: Array, features: Array) -> tuple[Array, tuple[Array, Array]]:
    return weighted_gram(weights, features), (weights, features)


def _gram_backward(kept: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array]:
    weights, features = kept
    both = cotangent + jnp.swapaxes(cotangent, 1, 2)
    products = [features @ each for each in both]
    of_weights = jnp.stack([0.5 * jnp.sum(each * features, axis=1) for each in products])
    slopes = sum(one[:, None] * each for one, each in zip(weights, products, strict=True))
    return of_weights, jnp.asarray(slopes)


weighted_gram.defvjp(_gram_forward, _gram_backward)


def symmetric_root(covariance: Array) -> Array:
    """Square roots of covariances [..., k, k] that may be singular."""
    values, vectors = jnp.linalg.eigh(covariance)
    return (vectors * jnp.sqrt(jnp.maximum(values, 0.0))[..., None, :]) @ jnp.swapaxes(vectors, -1, -2)


def pack(matrix: Array) -> Array:
    """The lower triangle of the last two axes, as one axis: the form in which symmetric matrices are sent."""
    rows, columns = _triangle(matrix.shape[-1])
    return matrix[..., rows, columns]


def unpack(packed: Packed) -> Packed:
    """The symmetric matrix with the given lower triangle."""
    return packed[..., _position((int(np.sqrt(8 * packed.shape[-1] + 1)) - 1) // 2)]


def packed_slopes(slopes: np.ndarray) -> np.ndarray:
    """Slopes with respect to packed matrices, from those with respect to the matrices.

    >>> packed_slopes(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([1., 5., 4.])
    """
    rows, columns = _triangle(slopes.shape[-1])
    both = slopes[..., rows, columns] + slopes[..., columns, rows]
    return np.where(rows == columns, 0.5, 1.0) * both


@cache
def _triangle(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the lower triangle."""
    return np.tril_indices(size)


@cache
def _position(size: int) -> np.ndarray:
    """The place of each entry of a symmetric matrix in its packed form."""
    rows, columns = _triangle(size)
    position = np.zeros((size, size), dtype=int)
    position[rows, columns] = position[columns, rows] = np.arange(len(rows))
    return position


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread, and restore the caller's setting afterwards.

    The matrices of a study are small, and idle BLAS threads would occupy cores that other sites can use.
    """
    with _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
