"""Adaptive importance sampling: a t distribution is fitted to the weighted points that it has proposed.

Points are weighted by the target over the mixture of all distributions that points have come from (the
deterministic mixture of Cornuet, Marin, Mira & Robert, Scandinavian Journal of Statistics 2012). Until enough
points matter, the weights are raised to a power below one before the next t distribution is fitted, so that a
distribution which starts far off moves towards the target step by step, and does not collapse onto one point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

DEGREES = 5.0
"""Degrees of freedom of the proposals: their tails are heavier than those of most targets."""
PER_DIMENSION = 8.0
"""Effective points per dimension that a covariance is estimated from."""
HALVINGS = 40
"""Halvings of the interval that holds the power."""


class Student(NamedTuple):
    """A multivariate t distribution, by its centre and a lower triangular root of its scale matrix."""

    centre: Float[np.ndarray, " d"]
    root: Float[np.ndarray, "d d"]

    def draw(self, count: int, rng: np.random.Generator) -> Float[np.ndarray, "n d"]:
        normal = rng.standard_normal((count, len(self.centre)))
        return self.centre + normal * np.sqrt(DEGREES / rng.chisquare(DEGREES, (count, 1))) @ self.root.T

    def log_density(self, points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Without its constant, which is the same for all distributions of this dimension."""
        white = solve_triangular(self.root, (points - self.centre).T, lower=True)
        distance = np.sum(white**2, axis=0)
        power = 0.5 * (DEGREES + len(self.centre))
        return -power * np.log1p(distance / DEGREES) - np.sum(np.log(np.diag(self.root)))


class WeightedPoints(NamedTuple):
    """Points, their log weights, and the distributions that they come from, in equal numbers."""

    points: Float[np.ndarray, "n d"]
    log_target: Float[np.ndarray, " n"]
    proposals: tuple[Student, ...]

    @property
    def log_weights(self) -> Float[np.ndarray, " n"]:
        """Log weights up to a constant; −∞ where the target is zero."""
        densities = [one.log_density(self.points) for one in self.proposals]
        return self.log_target - logsumexp(densities, axis=0)

    def with_points(
        self, points: Float[np.ndarray, "n d"], log_target: Float[np.ndarray, " n"], proposal: Student
    ) -> WeightedPoints:
        return WeightedPoints(
            np.concatenate([self.points, points]),
            np.concatenate([self.log_target, log_target]),
            (*self.proposals, proposal),
        )

    def fitted(self) -> Student:
        """The t distribution with the mean and covariance of the points, by their tempered weights."""
        weights = tempered(self.log_weights, PER_DIMENSION * self.points.shape[1])
        return fitted_to(self.points, weights)


def none_yet(size: int) -> WeightedPoints:
    """No points of this dimension."""
    return WeightedPoints(np.zeros((0, size)), np.zeros(0), ())


def fitted_to(points: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " n"]) -> Student:
    """The t distribution with the mean and covariance of weighted points; weights sum to one."""
    centre = weights @ points
    apart = points - centre
    covariance = (weights[:, None] * apart).T @ apart
    ridge = 1e-9 * np.trace(covariance) / len(centre) + 1e-12
    return Student(centre, np.linalg.cholesky(covariance + ridge * np.eye(len(centre))))


def effective_points(weights: Float[np.ndarray, " n"]) -> float:
    """Kish's (Σw)²/Σw².

    >>> effective_points(np.array([1.0, 1.0, 0.0])), effective_points(np.array([1.0, 0.0, 0.0]))
    (2.0, 1.0)
    """
    return float(np.sum(weights) ** 2 / np.sum(weights**2))


def tempered(log_weights: Float[np.ndarray, " n"], wanted: float) -> Float[np.ndarray, " n"]:
    """Weights raised to the largest power up to 1 at which the wanted number of points is effective.

    At most half of the points are asked for. The weights sum to one.
    """
    shifted = log_weights - np.max(log_weights)
    wanted = min(wanted, 0.5 * np.sum(np.isfinite(shifted)))

    def at(power: float) -> np.ndarray:
        weights = np.exp(power * np.where(np.isfinite(shifted), shifted, -np.inf))
        return weights / np.sum(weights)

    low, high = 1e-6, 1.0
    if effective_points(at(high)) >= wanted:
        return at(high)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective_points(at(middle)) >= wanted else (low, middle)
    return at(low)


def independence_chains(
    log_weights: Float[np.ndarray, " n"], chains: int, rng: np.random.Generator
) -> np.ndarray:
    """Indices [step, chain] of independence samplers whose proposals are the points in random order.

    Every point is proposed once, to one chain. Chains start at points drawn by their weights. If few points
    carry most of the weight the chains rarely move, and disagree, so that measures of mixing tell.
    """
    order = rng.permutation(len(log_weights))[: len(log_weights) // chains * chains].reshape(-1, chains)
    weights = np.exp(log_weights - np.max(log_weights))
    now = rng.choice(len(log_weights), chains, p=weights / np.sum(weights))
    chances = np.log(rng.random(order.shape))
    found = np.empty_like(order)
    for step, proposed in enumerate(order):
        now = np.where(chances[step] < log_weights[proposed] - log_weights[now], proposed, now)
        found[step] = now
    return found
