"""The ground truth of the CausalFI data: how confounders hang together, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri
from scipy.stats import poisson

COMPLETE, INCOMPLETE, FACTORS = 10, 10, 5
"""How many of the confounders are always seen (x), how many may have holes (u), and what they share."""
X = tuple(f"x{j}" for j in range(1, COMPLETE + 1))
U = tuple(f"u{j}" for j in range(1, INCOMPLETE + 1))
Kinds = Literal["numbers", "mixed"]


@dataclass(frozen=True, eq=False)
class Kind:
    """What a column shows of its Gaussian: itself, or how many thresholds it exceeds, named or not."""

    thresholds: np.ndarray | None = None
    levels: tuple[str, ...] = ()

    @cached_property
    def moments(self) -> tuple[float, float]:
        """Mean and sd of the number."""
        if self.thresholds is None:
            return 0.0, 1.0
        shares = np.diff(ndtr(self.edges))
        value = np.arange(len(shares))
        mean = float(shares @ value)
        return mean, float(np.sqrt(shares @ (value - mean) ** 2))

    @property
    def edges(self) -> np.ndarray:
        """Value k lies between edges k and k + 1."""
        return np.concatenate([[-np.inf], [] if self.thresholds is None else self.thresholds, [np.inf]])

    def number(self, latent: np.ndarray) -> np.ndarray:
        """The value, as a number, of a standard normal."""
        return latent if self.thresholds is None else np.searchsorted(self.thresholds, latent)

    def standard(self, latent: np.ndarray) -> np.ndarray:
        """The same in standard units, as treatment and outcome see it."""
        mean, sd = self.moments
        return (self.number(latent) - mean) / sd

    def show(self, latent: np.ndarray) -> np.ndarray:
        """The value as a table holds it."""
        return (
            np.array(self.levels, dtype=object)[self.number(latent)] if self.levels else self.number(latent)
        )

    def read(self, values: pd.Series) -> np.ndarray:
        """The numbers of a table's column, NaN where it has holes."""
        if self.levels:
            values = values.map({level: float(place) for place, level in enumerate(self.levels)})
        return values.to_numpy(float)


NUMBER = Kind()
BINARY = Kind(np.array([0.0]))
CATEGORY = Kind(ndtri(np.array([1.0, 2.0]) / 3.0), ("low", "middle", "high"))
COUNT = Kind(ndtri(poisson.cdf(np.arange(12), 2.0)))
MIXED = (NUMBER, BINARY, CATEGORY, COUNT, NUMBER) * 2
KINDS: dict[str, tuple[Kind, ...]] = {"numbers": (NUMBER,) * INCOMPLETE, "mixed": MIXED}


@dataclass(frozen=True, eq=False)
class World:
    """Σ of z = (u, x), and (intercept, slopes in u) of treatment and of both outcomes."""

    covariance: np.ndarray
    propensity: tuple[float, np.ndarray]  # a₀, b₁
    control: tuple[float, np.ndarray]  # c₀, c₁
    treated: tuple[float, np.ndarray]  # d₀, d₁
    kinds: tuple[Kind, ...]

    def standard(self, latent: np.ndarray) -> np.ndarray:
        """u in standard units, from its Gaussians."""
        return np.column_stack([kind.standard(latent[:, j]) for j, kind in enumerate(self.kinds)])


def draw_world(seed: int, sd: float = 2.0, kinds: Kinds = "numbers") -> World:
    """Five factors and a little of its own in each confounder, so that x tells about u."""
    generator = np.random.default_rng(seed)
    loadings = generator.standard_normal((INCOMPLETE + COMPLETE, FACTORS))
    covariance = loadings @ loadings.T + 0.3 * np.eye(len(loadings))
    scale = np.sqrt(np.diag(covariance))
    b1 = generator.normal(0.0, 0.5, INCOMPLETE)
    c1, d1 = 1.5 * generator.normal(0.0, sd, (2, INCOMPLETE))
    return World(covariance / np.outer(scale, scale), (0.2, b1), (0.9, c1), (2.0, d1), KINDS[kinds])


def linear(u: np.ndarray, line: tuple[float, np.ndarray]) -> np.ndarray:
    return line[0] + u @ line[1]


def softplus(value: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, value)
