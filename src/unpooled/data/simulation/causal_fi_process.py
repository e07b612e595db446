"""The data-generating process of the CausalFI simulations, and its conditional effects.

The conditional effect τ(x, u_r) is the expected effect for a person given x and the observed part u_r of u.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri, pdtr

from unpooled.data.stored_columns import column

COMPLETE, INCOMPLETE, FACTORS = 10, 10, 5
"""The numbers of confounders that are always observed (x) and that may be missing (u), and of factors."""
X = tuple(f"x{j}" for j in range(1, COMPLETE + 1))
U = tuple(f"u{j}" for j in range(1, INCOMPLETE + 1))
Kinds = Literal["numbers", "mixed"]


@dataclass(frozen=True, eq=False)
class ColumnKind:
    """How a column shows its Gaussian: as it is, or as the number or name of the thresholds it exceeds."""

    thresholds: np.ndarray | None = None
    levels: tuple[str, ...] = ()

    @cached_property
    def moments(self) -> tuple[float, float]:
        """Mean and sd of the value as a number."""
        if self.thresholds is None:
            return 0.0, 1.0
        shares = np.diff(ndtr(self.edges))
        value = np.arange(len(shares))
        mean = float(shares @ value)
        return mean, float(np.sqrt(shares @ (value - mean) ** 2))

    @property
    def edges(self) -> np.ndarray:
        """The Gaussian of value k lies between edges k and k + 1."""
        return np.concatenate([[-np.inf], [] if self.thresholds is None else self.thresholds, [np.inf]])

    def number(self, latent: np.ndarray) -> np.ndarray:
        """The value, as a number, of a standard normal variable."""
        return latent if self.thresholds is None else np.searchsorted(self.thresholds, latent)

    def standard(self, latent: np.ndarray) -> np.ndarray:
        """The value in standard units, on which treatment and outcome depend."""
        mean, sd = self.moments
        return (self.number(latent) - mean) / sd

    def show(self, latent: np.ndarray) -> np.ndarray:
        """The value as it is stored in a table."""
        return (
            np.array(self.levels, dtype=object)[self.number(latent)] if self.levels else self.number(latent)
        )

    def read(self, values: pd.Series) -> np.ndarray:
        """The values of a table's column as numbers, with NaN for missing values."""
        if self.levels:
            values = values.map({level: float(place) for place, level in enumerate(self.levels)})
        return values.to_numpy(float)


NUMBER = ColumnKind()
BINARY = ColumnKind(np.array([0.0]))
CATEGORY = ColumnKind(ndtri(np.array([1.0, 2.0]) / 3.0), ("low", "middle", "high"))
COUNT = ColumnKind(ndtri(pdtr(np.arange(12), 2.0)))
MIXED = (NUMBER, BINARY, CATEGORY, COUNT, NUMBER) * 2
KINDS: dict[str, tuple[ColumnKind, ...]] = {"numbers": (NUMBER,) * INCOMPLETE, "mixed": MIXED}


@dataclass(frozen=True, eq=False)
class CausalFiProcess:
    """Σ of z = (u, x), and (intercept, slopes in u) of the treatment and both outcomes."""

    covariance: np.ndarray
    propensity: tuple[float, np.ndarray]  # a₀, b₁
    control: tuple[float, np.ndarray]  # c₀, c₁
    treated: tuple[float, np.ndarray]  # d₀, d₁
    kinds: tuple[ColumnKind, ...]

    def standard(self, latent: np.ndarray) -> np.ndarray:
        """u in standard units, from its Gaussian variables."""
        return np.column_stack([kind.standard(latent[:, j]) for j, kind in enumerate(self.kinds)])


def draw_process(seed: int, sd: float = 2.0, kinds: Kinds = "numbers") -> CausalFiProcess:
    """Draw the coefficients; each confounder depends on five common factors, so that x predicts u."""
    generator = np.random.default_rng(seed)
    loadings = generator.standard_normal((INCOMPLETE + COMPLETE, FACTORS))
    covariance = loadings @ loadings.T + 0.3 * np.eye(len(loadings))
    scale = np.sqrt(np.diag(covariance))
    b1 = generator.normal(0.0, 0.5, INCOMPLETE)
    c1, d1 = 1.5 * generator.normal(0.0, sd, (2, INCOMPLETE))
    return CausalFiProcess(covariance / np.outer(scale, scale), (0.2, b1), (0.9, c1), (2.0, d1), KINDS[kinds])


def linear(u: np.ndarray, line: tuple[float, np.ndarray]) -> np.ndarray:
    return line[0] + u @ line[1]


def softplus(value: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, value)


NODES = 128
"""Nodes of the quadrature, enough for a softplus that is much steeper than the Gaussian is wide."""
BURN_IN, KEPT = 50, 400
"""Gibbs sweeps over the Gaussian variables behind columns of mixed kinds."""


def conditional_truth(process: CausalFiProcess, people: pd.DataFrame, seed: int = 0) -> np.ndarray:
    """E[mu1 − mu0 | x, u_r] for each person, where u_r is the observed part of u.

    This is exact if u is Gaussian: given (x, u_r), the index of each outcome is Gaussian, and the mean of its
    softplus is a one-dimensional integral. For mixed kinds it is the mean of 400 Gibbs draws by `seed`.
    The fact that a value is missing is not used, although it may depend on the outcome.
    """
    if any(kind.thresholds is not None for kind in process.kinds):
        return _drawn(process, people, np.random.default_rng(seed))
    control, treated = (_mean_softplus(mean, variance) for mean, variance in _indices(process, people))
    return treated - control


def _indices(process: CausalFiProcess, people: pd.DataFrame) -> list[tuple[np.ndarray, np.ndarray]]:
    """Mean and variance of both outcome indices, c₀ + c₁ᵀu and d₀ + d₁ᵀu, given the observed values."""
    z = people[[*U, *X]].to_numpy(float)
    arms = (process.control, process.treated)
    slopes = np.array([np.append(slope, np.zeros(len(X))) for _, slope in arms]).T
    mean, variance = np.zeros((len(z), 2)), np.zeros((len(z), 2))
    for seen, rows in _patterns(z):
        within, across = process.covariance[seen][:, seen], process.covariance[seen][:, ~seen]
        hidden = slopes[~seen]
        predicted = np.linalg.solve(within, across @ hidden)  # Σ_oo⁻¹ Σ_om c_m
        mean[rows] = z[rows][:, seen] @ (slopes[seen] + predicted)
        left = process.covariance[~seen][:, ~seen] @ hidden - across.T @ predicted
        variance[rows] = np.sum(hidden * left, axis=0)
    return [(arm[0] + mean[:, k], np.maximum(variance[:, k], 0.0)) for k, arm in enumerate(arms)]


def _patterns(z: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each missing pattern, as a mask of observed columns, and its rows."""
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


def _drawn(process: CausalFiProcess, people: pd.DataFrame, generator: np.random.Generator) -> np.ndarray:
    """Gibbs sampling: each Gaussian in turn given all others, within the bounds of its observed value."""
    lower, upper = _bounds(process, people)
    precision = np.linalg.inv(process.covariance)
    fixed = people[list(X)].to_numpy(float) @ precision[INCOMPLETE:, :INCOMPLETE]
    z = np.clip(np.zeros_like(lower), lower, upper)
    total = np.zeros(len(z))
    for sweep in range(BURN_IN + KEPT):
        for j in range(INCOMPLETE):
            own = precision[j, j]
            mean = z[:, j] - (z @ precision[:INCOMPLETE, j] + fixed[:, j]) / own
            z[:, j] = _between(mean, own**-0.5, lower[:, j], upper[:, j], generator)
        if sweep >= BURN_IN:
            u = process.standard(z)
            total += softplus(linear(u, process.treated)) - softplus(linear(u, process.control))
    return total / KEPT


def _bounds(process: CausalFiProcess, people: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The bounds of each person's Gaussians: none, two edges, or a single number."""
    lower = np.full((len(people), INCOMPLETE), -np.inf)
    upper = -lower
    for j, (name, kind) in enumerate(zip(U, process.kinds, strict=True)):
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
    """Draw a truncated Gaussian by its inverse distribution function, which is precise in the left tail."""
    side = np.where(lower > mean, -1.0, 1.0)
    edges = ndtr(side * (lower - mean) / sd), ndtr(side * (upper - mean) / sd)
    share = edges[0] + (edges[1] - edges[0]) * generator.random(len(mean))
    return np.clip(mean + side * sd * ndtri(share), lower, upper)
