"""τ(x, u_r): the effect that can be expected of a person of whom only some confounders are seen."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from unpooled.data.presence import column
from unpooled.data.simulation.causal_fi_world import INCOMPLETE, U, World, X, linear, softplus

NODES = 128
"""Of the quadrature: enough for a softplus much narrower than its Gaussian."""
BURN_IN, KEPT = 50, 400
"""Sweeps over the Gaussians behind columns of other kinds."""


def conditional_truth(world: World, people: pd.DataFrame, seed: int = 0) -> np.ndarray:
    """E[mu1 − mu0 | x, u_r] of each person, u_r being what their row shows of u.

    Exact where u is Gaussian: given (x, u_r) each outcome's index is Gaussian too, so its mean softplus is
    an integral over a line. Of mixed kinds it is the mean of 400 draws by Gibbs, so `seed` matters there.
    That a value is missing tells nothing here, although it may depend on the outcome.
    """
    if any(kind.thresholds is not None for kind in world.kinds):
        return _drawn(world, people, np.random.default_rng(seed))
    control, treated = (_mean_softplus(mean, variance) for mean, variance in _indices(world, people))
    return treated - control


def _indices(world: World, people: pd.DataFrame) -> list[tuple[np.ndarray, np.ndarray]]:
    """Mean and variance of both outcomes' indices, c₀ + c₁ᵀu and d₀ + d₁ᵀu, given what is seen."""
    z = people[[*U, *X]].to_numpy(float)
    arms = (world.control, world.treated)
    slopes = np.array([np.append(slope, np.zeros(len(X))) for _, slope in arms]).T
    mean, variance = np.zeros((len(z), 2)), np.zeros((len(z), 2))
    for seen, rows in _patterns(z):
        within, across = world.covariance[seen][:, seen], world.covariance[seen][:, ~seen]
        hidden = slopes[~seen]
        told = np.linalg.solve(within, across @ hidden)  # Σ_oo⁻¹ Σ_om c_m
        mean[rows] = z[rows][:, seen] @ (slopes[seen] + told)
        left = world.covariance[~seen][:, ~seen] @ hidden - across.T @ told
        variance[rows] = np.sum(hidden * left, axis=0)
    return [(arm[0] + mean[:, k], np.maximum(variance[:, k], 0.0)) for k, arm in enumerate(arms)]


def _patterns(z: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Which columns are seen, and the rows where just these are."""
    patterns, which = np.unique(~np.isnan(z), axis=0, return_inverse=True)
    for number, seen in enumerate(patterns):
        yield seen, np.flatnonzero(which.ravel() == number)


def _mean_softplus(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    nodes, weights = _quadrature()
    return softplus(mean[:, None] + np.sqrt(variance)[:, None] * nodes) @ weights


@cache
def _quadrature() -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return nodes, weights / weights.sum()


def _drawn(world: World, people: pd.DataFrame, generator: np.random.Generator) -> np.ndarray:
    """By Gibbs: each Gaussian in turn given all others, between the edges of the value that it shows."""
    lower, upper = _bounds(world, people)
    precision = np.linalg.inv(world.covariance)
    fixed = people[list(X)].to_numpy(float) @ precision[INCOMPLETE:, :INCOMPLETE]
    z = np.clip(np.zeros_like(lower), lower, upper)
    total = np.zeros(len(z))
    for sweep in range(BURN_IN + KEPT):
        for j in range(INCOMPLETE):
            own = precision[j, j]
            mean = z[:, j] - (z @ precision[:INCOMPLETE, j] + fixed[:, j]) / own
            z[:, j] = _between(mean, own**-0.5, lower[:, j], upper[:, j], generator)
        if sweep >= BURN_IN:
            u = world.standard(z)
            total += softplus(linear(u, world.treated)) - softplus(linear(u, world.control))
    return total / KEPT


def _bounds(world: World, people: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Where each person's Gaussians can be: anywhere, between two edges, or at a number."""
    lower = np.full((len(people), INCOMPLETE), -np.inf)
    upper = -lower
    for j, (name, kind) in enumerate(zip(U, world.kinds, strict=True)):
        value = kind.read(column(people, name))
        seen = ~np.isnan(value)
        if kind.thresholds is None:
            lower[seen, j] = upper[seen, j] = value[seen]
        else:
            place = value[seen].astype(int)
            lower[seen, j], upper[seen, j] = kind.edges[place], kind.edges[place + 1]
    return lower, upper


def _between(
    mean: np.ndarray, sd: float, lower: np.ndarray, upper: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """A Gaussian inside its bounds, by its inverse distribution function, which is precise on the left."""
    side = np.where(lower > mean, -1.0, 1.0)
    edges = ndtr(side * (lower - mean) / sd), ndtr(side * (upper - mean) / sd)
    share = edges[0] + (edges[1] - edges[0]) * generator.random(len(mean))
    return np.clip(mean + side * sd * ndtri(share), lower, upper)
