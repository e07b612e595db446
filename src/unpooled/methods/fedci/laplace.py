"""Draws of the hyperparameters about their mode."""

from __future__ import annotations

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.linalg import solve_triangular

from unpooled.methods.fedci.structures import Structure
from unpooled.optimise.objective import flatten
from unpooled.protocol.records import Arrays

DEGREES = 5
LOOSEST = 0.5
"""Least prior precision of any direction among the hyperparameters."""


def around(mode: Arrays, precision: np.ndarray, count: int, seed: int) -> Arrays:
    """θ ~ t(θ̂, precision⁻¹). Student's t: a posterior's tails are heavier than its mode's curvature tells."""
    flat, unravel = flatten(jax.tree.map(lambda leaf: np.asarray(leaf)[None], mode))
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((count, flat.shape[1]))
    stretched = normal * np.sqrt(DEGREES / rng.chisquare(DEGREES, (count, 1)))
    # With precision CCᵀ, C⁻ᵀz has its inverse as covariance.
    spread = solve_triangular(np.linalg.cholesky(precision), stretched.T, lower=True, trans=1).T
    return unravel(flat + spread)


def precision_of(hessian: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Prior and likelihood, the latter only where it narrows: no direction spreads beyond its prior."""
    return _not_below(prior, LOOSEST) + _not_below(hessian - prior, 0.0)


def _not_below(matrix: np.ndarray, least: float) -> np.ndarray:
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    return (vectors * np.maximum(values, least)) @ vectors.T


def prior_curvature(structure: Structure, free: Arrays, fixed: Arrays) -> np.ndarray:
    """The Hessian of −log prior: the coordinator's own affair."""
    return np.asarray(_prior_curvature(structure, free, fixed))


@jax.jit
def _prior_curvature(structure: Structure, free: Arrays, fixed: Arrays) -> jax.Array:
    flat, unravel = ravel_pytree(free)
    return jax.hessian(lambda point: -structure.log_prior(unravel(point), fixed))(flat)
