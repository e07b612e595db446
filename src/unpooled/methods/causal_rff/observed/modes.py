"""Empirical Bayes for the regression: the mode of its variances, and draws about it, for all site terms."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.optimize import minimize

from unpooled.maths.compilation import Program
from unpooled.maths.streams import key_data
from unpooled.methods.causal_rff.observed.regression import SPREAD, RegressionStatistics
from unpooled.protocol.records import Arrays

HAIR = 1e-4
"""Step of the finite differences of gradients; log-variances are of order one."""
REACH = 12.0
"""Bound on the distance of a parameter from its prior expectation: a factor of e¹² for a variance."""


class SiteTerms(Protocol):
    """How coefficients are related between sites, given a point: log-variances and other parameters."""

    @property
    def linked(self) -> bool:
        """Whether outcomes have a link: 0/1 outcomes and counts."""
        ...

    @property
    def expected(self) -> np.ndarray:
        """The prior expectation of the point."""
        ...

    @property
    def variances(self) -> np.ndarray:
        """Indices of the log-variances to be learned, which are drawn about their mode."""
        ...

    @property
    def others(self) -> np.ndarray:
        """Indices of the other parameters to be learned, which stay at their mode."""
        ...

    def log_evidence(self, point: Array, sums: RegressionStatistics) -> Array:
        """Log evidence of the outcomes plus log prior of the point."""
        ...

    def coefficients(self, point: Array, sums: RegressionStatistics, key: Array | None) -> dict[str, Array]:
        """A draw, or the mean without a key: {common [2, f], site [m, 2, w], noise [2]}."""
        ...

    def between_sites(self, point: Array, sums: RegressionStatistics) -> dict[str, Array]:
        """Diagnostics by pair of sites: borrowed shares, and learned relations."""
        ...


class VarianceMode(NamedTuple):
    """The posterior mode of the point, its precision, and the Laplace log evidence."""

    point: np.ndarray
    precision: np.ndarray
    evidence: float


def expected(terms: SiteTerms) -> VarianceMode:
    """The prior expectation of the point, in place of a mode."""
    point = terms.expected
    return VarianceMode(point, np.zeros((len(point), len(point))), 0.0)


def find_mode(
    terms: SiteTerms, sums: RegressionStatistics, start: np.ndarray | None = None, *, curvature: bool = True
) -> VarianceMode:
    """Maximise the evidence over all learned parameters."""
    expected, curved = terms.expected, terms.variances
    learned = np.concatenate([curved, terms.others])
    found = minimize(
        lambda at: [np.asarray(part) for part in _value_and_slope(terms, at, expected, learned, sums)],
        (expected if start is None else start)[learned],
        jac=True,
        method="L-BFGS-B",
        bounds=[(expected[i] - REACH, expected[i] + REACH) for i in learned],
        options={"maxiter": 100, "ftol": 1e-9},
    )
    mode, precision = expected.copy(), np.zeros((len(expected), len(expected)))
    mode[learned] = found.x
    if not curvature:
        return VarianceMode(mode, precision, -float(found.fun))
    values, vectors = np.linalg.eigh(_curvature(terms, found.x, len(curved), expected, learned, sums))
    values = np.maximum(values, 1.0 / SPREAD**2)
    precision[np.ix_(curved, curved)] = (vectors * values) @ vectors.T
    return VarianceMode(mode, precision, -float(found.fun) - 0.5 * float(np.log(values).sum()))


@partial(Program, often=True, static_argnums=0)
def _value_and_slope(
    terms: SiteTerms, values: Array, expected: Array, learned: Array, sums: RegressionStatistics
) -> tuple:
    def value(part: Array) -> Array:
        return -terms.log_evidence(expected.at[learned].set(part), sums)

    return jax.value_and_grad(value)(values)


def _curvature(
    terms: SiteTerms,
    at: np.ndarray,
    count: int,
    expected: np.ndarray,
    learned: np.ndarray,
    sums: RegressionStatistics,
) -> np.ndarray:
    """The Hessian in the first parameters by differences of exact gradients; jax.hessian compiles slowly."""
    slopes = [
        np.asarray(_value_and_slope(terms, at + step, expected, learned, sums)[1])[:count]
        for step in np.concatenate([HAIR * np.eye(len(at))[:count], -HAIR * np.eye(len(at))[:count]])
    ]
    found = (np.array(slopes[:count]) - np.array(slopes[count:])) / (2.0 * HAIR)
    return 0.5 * (found + found.T)


def mean(terms: SiteTerms, sums: RegressionStatistics, mode: VarianceMode) -> Arrays:
    """The posterior mean of the coefficients at the mode."""
    return _arrays(_mean(terms, jnp.asarray(mode.point), sums))


@partial(Program, static_argnums=0)
def _mean(terms: SiteTerms, point: Array, sums: RegressionStatistics) -> dict[str, Array]:
    return terms.coefficients(point, sums, None)


def between_sites(terms: SiteTerms, sums: RegressionStatistics, mode: VarianceMode) -> Arrays:
    """Diagnostics by pair of sites at the mode."""
    return _arrays(_diagnostics(terms, jnp.asarray(mode.point), sums))


@partial(Program, static_argnums=0)
def _diagnostics(terms: SiteTerms, point: Array, sums: RegressionStatistics) -> dict[str, Array]:
    return terms.between_sites(point, sums)


def draw(
    terms: SiteTerms, sums: RegressionStatistics, mode: VarianceMode, count: int, rng: np.random.Generator
) -> Arrays:
    """Draw variances about their mode, and coefficients from their exact posterior given each."""
    values, vectors = np.linalg.eigh(mode.precision)
    scale = np.where(values > 1e-9, 1.0 / np.sqrt(np.maximum(values, 1e-9)), 0.0)
    # The symmetric root does not depend on the vectors that the solver picks for equal eigenvalues.
    root = (vectors * scale) @ vectors.T
    moved = mode.point + rng.standard_normal((count, len(scale))) @ root
    return _arrays(_draws(terms, moved, sums, key_data(rng, count)))


@partial(Program, static_argnums=0)
def _draws(terms: SiteTerms, points: Array, sums: RegressionStatistics, keys: Array) -> dict[str, Array]:
    return jax.lax.map(
        lambda leaves: terms.coefficients(leaves[0], sums, leaves[1]),
        (points, jax.random.wrap_key_data(keys)),
    )


def _arrays(found: dict[str, Array]) -> Arrays:
    return {name: np.asarray(part) for name, part in found.items()}
