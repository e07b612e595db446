"""Random Fourier features, which approximate a stationary kernel by a product of features.

k(x, x') = E cos ωᵀ(x − x') for ω drawn from the kernel's spectral density, so with B draws
φ(x) = B^{−½}[cos ω_bᵀx, sin ω_bᵀx] has φ(x)ᵀφ(x') ≈ k(x, x'). Every party draws the same ω from the
study's seed, so they are never sent. ω is drawn for length-scale one and inputs are divided by ℓ, so ω stays
fixed while ℓ is estimated.

ω is an angular frequency throughout. The paper's table of densities mixes conventions: its Gaussian row is
angular, its Matérn row is in ordinary frequency (ω/2π), and its Laplacian row integrates to (2π)^{d/2} and
uses ℓ for the inverse length-scale.
"""

from __future__ import annotations

from typing import Literal, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.errors import StudyError, nearest
from unpooled.maths.kernels import Family, correlation, squared_distances

Kernel = Literal["gaussian", "laplacian", "matern12", "matern32", "matern52", "rational_quadratic"]
Frequencies = Float[np.ndarray, "b d"]

# 2ν, the degrees of freedom of the multivariate t distribution that is a Matérn kernel's spectral density.
_DEGREES = {"matern12": 1, "matern32": 3, "matern52": 5}
_FAMILIES: dict[str, Family] = {
    "gaussian": "squared_exponential",
    "matern32": "matern32",
    "matern52": "matern52",
    "rational_quadratic": "rational_quadratic",
}


def frequencies(
    kernel: Kernel, dimension: int, count: int, rng: np.random.Generator, *, orthogonal: bool = False
) -> Frequencies:
    """ω_1 … ω_B for length-scale one; with `orthogonal`, in blocks of d mutually orthogonal vectors.

    Orthogonality does not change the distribution of a single ω, so the approximation remains unbiased, and
    it approximates the Gaussian kernel more closely with the same number of frequencies.

    >>> frequencies("matern32", 3, 5, np.random.default_rng(7)).shape
    (5, 3)
    """
    _check(kernel, dimension, count, orthogonal)
    generator = rng
    if kernel == "laplacian":
        return generator.standard_cauchy((count, dimension))
    if orthogonal:
        normal = _orthogonal_normals(generator, dimension, count)
    else:
        normal = generator.standard_normal((count, dimension))
    if kernel == "gaussian":
        return normal
    if kernel == "rational_quadratic":
        # 1/(1 + r²/2) = E exp(−τr²/2) with τ exponential: a normal vector times √τ.
        return normal * np.sqrt(generator.standard_exponential((count, 1)))
    # t = normal / √(χ²/2ν), with one χ² per vector, so that the kernel depends only on |x − x'|.
    degrees = _DEGREES[kernel]
    return normal * np.sqrt(degrees / generator.chisquare(degrees, (count, 1)))


def _orthogonal_normals(generator: np.random.Generator, dimension: int, count: int) -> Frequencies:
    """Vectors that are marginally standard normal, and orthogonal within blocks of d."""
    blocks = -(-count // dimension)
    basis, upper = np.linalg.qr(generator.standard_normal((blocks, dimension, dimension)))
    # Only with a positive diagonal is QR unique and its basis uniformly distributed over rotations.
    basis = basis * np.sign(np.diagonal(upper, axis1=1, axis2=2))[:, None, :]
    # The directions have length one; the length of a normal vector is χ with d degrees of freedom.
    radius = np.sqrt(generator.chisquare(dimension, (count, 1)))
    return basis.reshape(-1, dimension)[:count] * radius


def fourier_features(
    frequencies: Frequencies | Array, inputs: Float[Array, "n d"], length: Float[Array, ""] | float
) -> Float[Array, "n 2b"]:
    """φ(x), which has length one for every row; with one length-scale, or one per column."""
    angles = (inputs / length) @ frequencies.T
    both = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=1)
    return both / jnp.sqrt(frequencies.shape[0])


def kernel_value(
    kernel: Kernel, left: Float[Array, "n d"], right: Float[Array, "m d"], length: Float[Array, ""] | float
) -> Float[Array, "n m"]:
    """The exact kernel k(x, x'), the limit of φ(x)ᵀφ(x') for many frequencies."""
    left, right = left / length, right / length
    if kernel == "laplacian":
        # One column at a time, so that no n × m × d array is formed.
        columns = range(left.shape[1])
        return jnp.exp(-sum(jnp.abs(left[:, k, None] - right[None, :, k]) for k in columns))
    squared = squared_distances(left, right)
    if kernel == "matern12":
        # Bounded away from zero, where √ has an infinite derivative.
        return jnp.exp(-jnp.sqrt(jnp.maximum(squared, 1e-18)))
    return correlation(_FAMILIES[kernel], squared)


def _check(kernel: str, dimension: int, count: int, orthogonal: bool) -> None:
    known = get_args(Kernel)
    if kernel not in known:
        raise StudyError("the kernel must be known", found=f"'{kernel}'", remedy=nearest(kernel, known))
    if dimension < 1 or count < 1:
        raise StudyError(
            "Fourier features need at least one input column and one frequency",
            found=f"{dimension} columns, {count} frequencies",
            remedy="give whole numbers above zero for both",
        )
    if orthogonal and kernel == "laplacian":
        raise StudyError(
            "orthogonal frequencies need an isotropic kernel",
            found="kernel 'laplacian', which is a product over columns",
            remedy="set orthogonal=False, or choose 'matern12': the same shape, in Euclidean distance",
        )
