"""The dispersion α of a count outcome, drawn from sums of log densities on a grid.

Given everybody's predictor, p(α | y) ∝ p(α) Π_i p(y_i | η_i, α) depends on the people only through the sum of
their log densities, a smooth function of log α. The sites send its values on a coarse grid, and the
coordinator interpolates them by a cubic spline and draws α from a fine grid, or takes the mode.

CausalFI and CausalRFF do so. The dispersion is drawn in the same round as the outcome's coefficients, each
given the other's last draw. In a negative binomial regression the two are orthogonal in Fisher's information
(Lawless 1987), so that neither depends on the other to first order.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import CubicSpline

from unpooled.disclosure.effective_people import spread_out
from unpooled.models.outcome_family import NegativeBinomial

LEAST, MOST = 1e-3, 30.0
"""Smallest and largest dispersion. A mean of 10 has a variance of 10.1 at the smallest: almost Poisson."""
POINTS = np.linspace(np.log(LEAST), np.log(MOST), 12)
"""Coarse grid of log α, at which sites sum log densities."""
FINE = np.linspace(POINTS[0], POINTS[-1], 1001)
SPLINE = CubicSpline(POINTS, np.eye(len(POINTS)))(FINE)
"""Values of the interpolating spline on the fine grid, as a linear map of those on the coarse one."""
PRIOR = 0.5 * FINE - 0.5 * np.exp(FINE)
"""Log prior density of log α. √α, the relative sd of people's own rates, is half-normal with scale 1."""
FEATURES = 5
"""The grid counts as this many features for the sites' limits: their products are as many sums."""


def log_densities(
    family: NegativeBinomial,
    outcome: Float[Array, " n"],
    predictor: Float[Array, " n"],
    arms: Float[Array, "2 n"],
    least: float,
) -> Float[Array, "2 k"]:
    """Sums over the people of each arm of log p(y | η, α) at the points of the grid; nobody dominates one."""

    def at(log: Array) -> Array:
        return family.log_density(outcome, predictor, jnp.exp(log))

    logs = jax.vmap(at)(jnp.asarray(POINTS))

    def of_arm(people: Array) -> Array:
        # Nobody may be left in an arm, which then has no median.
        return jnp.where(people > 0.0, spread_out(logs, people, least), 0.0) @ people

    return jax.vmap(of_arm)(arms)


def log_posterior(sums: Float[np.ndarray | Array, "*c k"]) -> Any:
    """Log posterior density of log α on the fine grid, given sums of log densities on the coarse one."""
    return sums @ SPLINE.T + PRIOR


def most_probable(sums: Float[np.ndarray | Array, "*c k"]) -> Float[Array, "*c"]:
    """The mode of the dispersions."""
    return jnp.exp(jnp.asarray(FINE)[jnp.argmax(log_posterior(sums), axis=-1)])


def draw_dispersion(sums: Float[np.ndarray, "*c k"], rng: np.random.Generator) -> Float[np.ndarray, "*c"]:
    """Draw dispersions, evenly within the chosen cell of the fine grid."""
    logs = log_posterior(sums)
    chosen = FINE[np.argmax(logs + rng.gumbel(size=logs.shape), axis=-1)]
    inside = rng.uniform(-0.5, 0.5, chosen.shape)
    return np.exp(np.clip(chosen + inside * (FINE[1] - FINE[0]), POINTS[0], POINTS[-1]))
