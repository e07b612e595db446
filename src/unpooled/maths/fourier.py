"""Random Fourier features: a kernel of x − x' as a product of features that nobody has to send.

k(x, x') = E cos ωᵀ(x − x') for ω drawn from the kernel's spectral density, so with B draws
φ(x) = B^{−½}[cos ω_bᵀx, sin ω_bᵀx] has φ(x)ᵀφ(x') ≈ k(x, x'). Every party draws the same ω from the
study's seed. They are drawn for length-scale one, and inputs are divided by ℓ: learning ℓ redraws nothing.

ω is in angular frequency throughout. The paper's table of densities mixes conventions: its Gaussian row is
angular, its Matérn row in ordinary frequency (ω/2π), and its Laplacian row integrates to (2π)^{d/2} and has
ℓ for one over the length-scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.errors import StudyError, nearest
from unpooled.maths.kernels import Family, correlation, squared_distances

Kernel = Literal["gaussian", "laplacian", "matern12", "matern32", "matern52"]
Frequencies = Float[np.ndarray, "b d"]

# 2ν: the Matérn kernels' spectral densities are multivariate t with so many degrees of freedom.
_DEGREES = {"matern12": 1, "matern32": 3, "matern52": 5}
_FAMILIES: dict[str, Family] = {
    "gaussian": "squared_exponential",
    "matern32": "matern32",
    "matern52": "matern52",
}


def frequencies(
    kernel: Kernel, dimension: int, count: int, seed: int | Sequence[int], *, orthogonal: bool = False
) -> Frequencies:
    """ω_1 … ω_B for length-scale one; with `orthogonal`, each d of them at right angles to each other.

    Right angles leave every single ω's distribution as it is, so the kernel stays the mean, and the
    Gaussian kernel is met more closely with equally many frequencies.

    >>> frequencies("matern32", 3, 5, seed=7).shape
    (5, 3)
    """
    _check(kernel, dimension, count, orthogonal)
    generator = np.random.default_rng(seed)
    if kernel == "laplacian":
        return generator.standard_cauchy((count, dimension))
    if orthogonal:
        normal = _orthogonal_normals(generator, dimension, count)
    else:
        normal = generator.standard_normal((count, dimension))
    if kernel == "gaussian":
        return normal
    # t = normal / √(χ²/2ν): one χ² for the whole vector, so that the kernel depends on |x − x'| alone.
    degrees = _DEGREES[kernel]
    return normal * np.sqrt(degrees / generator.chisquare(degrees, (count, 1)))


def _orthogonal_normals(generator: np.random.Generator, dimension: int, count: int) -> Frequencies:
    """Standard normal vectors, each by itself; in blocks of d they are orthogonal."""
    blocks = -(-count // dimension)
    basis, upper = np.linalg.qr(generator.standard_normal((blocks, dimension, dimension)))
    # QR is unique, and its basis uniform over rotations, only with a positive diagonal.
    basis = basis * np.sign(np.diagonal(upper, axis1=1, axis2=2))[:, None, :]
    # Directions have length one; a normal vector's length is χ with d degrees of freedom.
    radius = np.sqrt(generator.chisquare(dimension, (count, 1)))
    return basis.reshape(-1, dimension)[:count] * radius


def fourier_features(
    frequencies: Frequencies | Array, inputs: Float[Array, "n d"], length: Float[Array, ""] | float
) -> Float[Array, "n 2b"]:
    """φ(x), of length one for everybody; one length-scale, or one per column."""
    angles = (inputs / length) @ frequencies.T
    both = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=1)
    return both / jnp.sqrt(frequencies.shape[0])


def kernel_value(
    kernel: Kernel, left: Float[Array, "n d"], right: Float[Array, "m d"], length: Float[Array, ""] | float
) -> Float[Array, "n m"]:
    """k(x, x') itself: what φ(x)ᵀφ(x') comes to with ever more frequencies."""
    left, right = left / length, right / length
    if kernel == "laplacian":
        # One column at a time: never an n × m × d array.
        columns = range(left.shape[1])
        return jnp.exp(-sum(jnp.abs(left[:, k, None] - right[None, :, k]) for k in columns))
    squared = squared_distances(left, right)
    if kernel == "matern12":
        # Away from zero by a hair: there √ has no finite slope.
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
            remedy="give both as whole numbers above zero",
        )
    if orthogonal and kernel == "laplacian":
        raise StudyError(
            "orthogonal frequencies need a kernel that is the same in all directions",
            found="kernel 'laplacian', a product over columns",
            remedy="leave orthogonal out, or choose 'matern12': the same shape, of Euclidean distance",
        )
