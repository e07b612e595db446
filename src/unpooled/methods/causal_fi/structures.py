"""Structures of the outcome model: how an arm's outcome may depend on the confounders g = (1, x, u).

A structure is linear in g plus a nonlinear function of one index. All quantities are in standard units.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

INTERCEPT, SLOPES, DIRECTION, SHIFT, WIDTH, BUMPS = range(6)
"""Groups of coefficients; each group has one prior variance."""
EXPECTED = np.array([100.0, 0.005, 0.3, 1.0, 0.25, 0.3])
"""Prior variance of each group. It is small for the slopes, of which there may be many; being learned, it can
grow with the data."""
LEARNED = np.array([False, True, True, False, False, True])
"""Whether the variance of each group is learned."""
KNEE = 0.5
"""Prior width of the bend of `Softplus`, in sds of the outcome."""
KNOTS = np.linspace(-2.5, 2.5, 9)
"""Centres of the basis functions of `Index`; the index has a variance of about one."""


class Parts(NamedTuple):
    """An arm's coefficients, split by role: η = slopesᵀg + curve(directionᵀz), with g = (1, z)."""

    slopes: Float[Array, " p"]
    direction: Float[Array, " q"]
    shape: Float[Array, " k"]


class BendStructure(Protocol):
    """One structure. `bend` is the sign of the nonlinear part, or 0 in an arm that is linear."""

    name: ClassVar[str]
    starts: ClassVar[tuple[tuple[float, float], ...]]
    """Starting points: the sign of the bend, and the amount of noise added to the direction."""

    def groups(self, size: int) -> np.ndarray:
        """The group of each coefficient, for g of this size."""
        ...

    def parts(self, coefficients: Array, size: int) -> Parts:
        """Split the coefficients by role."""
        ...

    def curve(self, shape: Array, index: Array, bend: Array) -> Array:
        """The nonlinear part as a function of the index."""
        ...

    def start(self, linear: np.ndarray, bend: float, far: float, rng: np.random.Generator) -> np.ndarray:
        """Starting coefficients near a linear fit, with relative noise `far` in the direction."""
        ...

    def linear_arm(self, linear: np.ndarray) -> np.ndarray:
        """Coefficients of a linear arm."""
        ...


def predictor(structure: BendStructure, coefficients: Array, g: Float[Array, " p"], bend: Array) -> Array:
    """The predictor η of one person, without the site's offset."""
    parts = structure.parts(coefficients, g.shape[0])
    return parts.slopes @ g + structure.curve(parts.shape, parts.direction @ g[1:], bend)


class Linear:
    """η = aᵀg."""

    name: ClassVar[str] = "linear"
    starts: ClassVar[tuple[tuple[float, float], ...]] = ((1.0, 0.0),)

    def groups(self, size: int) -> np.ndarray:
        return np.array([INTERCEPT, *[SLOPES] * (size - 1)])

    def parts(self, coefficients: Array, size: int) -> Parts:
        return Parts(coefficients, jnp.zeros(size - 1), jnp.zeros(0))

    def curve(self, shape: Array, index: Array, bend: Array) -> Array:
        return jnp.zeros_like(index)

    def start(self, linear: np.ndarray, bend: float, far: float, rng: np.random.Generator) -> np.ndarray:
        return linear.copy()

    def linear_arm(self, linear: np.ndarray) -> np.ndarray:
        return linear


def _softplus(at: Array) -> Array:
    """log(1 + exp(x)), in half of the operations of `jax.nn.softplus`, which also serves infinite values."""
    return jnp.maximum(at, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(at)))


class Softplus:
    """η = aᵀg ± ρ[sp((γᵀz + c)/ρ) − sp(c/ρ)]: one bend with slope γ, location c and width ρ.

    In this parameterisation the posterior is close to a Gaussian at its mode; with α·sp(θᵀz + c) it is not.
    """

    name: ClassVar[str] = "softplus"
    starts: ClassVar[tuple[tuple[float, float], ...]] = ((1.0, 0.2), (1.0, 0.8), (-1.0, 0.2), (-1.0, 0.8))

    def groups(self, size: int) -> np.ndarray:
        return np.array([INTERCEPT, *[SLOPES] * (size - 1), *[DIRECTION] * (size - 1), SHIFT, WIDTH])

    def parts(self, coefficients: Array, size: int) -> Parts:
        return Parts(coefficients[:size], coefficients[size : 2 * size - 1], coefficients[2 * size - 1 :])

    def curve(self, shape: Array, index: Array, bend: Array) -> Array:
        place, width = shape[0], KNEE * jnp.exp(shape[1])
        return bend * width * (_softplus((index + place) / width) - _softplus(place / width))

    def start(self, linear: np.ndarray, bend: float, far: float, rng: np.random.Generator) -> np.ndarray:
        # A softplus with final slope γ has an average slope of γ/2.
        direction = 2.0 * bend * linear[1:]
        direction = direction + far * np.sqrt(np.mean(direction**2)) * rng.standard_normal(len(direction))
        shape = [0.3 * rng.standard_normal(), 0.0]
        return np.concatenate([linear[:1], np.zeros(len(direction)), direction, shape])

    def linear_arm(self, linear: np.ndarray) -> np.ndarray:
        return np.concatenate([linear, np.zeros(len(linear) - 1 + 2)])


class Index:
    """η = aᵀg + Σ_b c_b·bump_b(γᵀz): a smooth function of one learned index."""

    name: ClassVar[str] = "index"
    starts: ClassVar[tuple[tuple[float, float], ...]] = ((1.0, 0.2), (1.0, 0.8))

    def groups(self, size: int) -> np.ndarray:
        return np.array([INTERCEPT, *[SLOPES] * (size - 1), *[DIRECTION] * (size - 1), *[BUMPS] * len(KNOTS)])

    def parts(self, coefficients: Array, size: int) -> Parts:
        return Parts(coefficients[:size], coefficients[size : 2 * size - 1], coefficients[2 * size - 1 :])

    def curve(self, shape: Array, index: Array, bend: Array) -> Array:
        distance = (index[..., None] - KNOTS) / (KNOTS[1] - KNOTS[0])
        return bend * (jnp.exp(-0.5 * distance**2) @ shape)

    def start(self, linear: np.ndarray, bend: float, far: float, rng: np.random.Generator) -> np.ndarray:
        length = max(float(np.sqrt(np.sum(linear[1:] ** 2))), 1e-6)
        noise = rng.standard_normal(len(linear) - 1)
        direction = linear[1:] / length + far / np.sqrt(len(linear) - 1) * noise
        return np.concatenate([linear, direction, np.zeros(len(KNOTS))])

    def linear_arm(self, linear: np.ndarray) -> np.ndarray:
        return np.concatenate([linear, np.zeros(len(linear) - 1 + len(KNOTS))])


STRUCTURES: dict[str, BendStructure] = {each.name: each for each in (Linear(), Softplus(), Index())}
