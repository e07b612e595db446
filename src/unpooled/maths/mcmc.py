"""Steps of Markov chain Monte Carlo: the independence sampler, and variances given normal terms.

The independence sampler is Metropolis–Hastings with proposals drawn from q regardless of the chain's state.
A proposal is accepted with probability min(1, r'/r), where r = p/q. The closer q is to the target p, the
faster the chain mixes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

LogDensity = Callable[[Array], Array]


class Chains(NamedTuple):
    """The state of every chain after every step, and the share of proposals that each chain accepted."""

    samples: Float[Array, "t *chains d"]
    acceptance: Float[Array, "*chains"]

    @property
    def last(self) -> Float[Array, "*chains d"]:
        return self.samples[-1]


def independence(
    log_target: LogDensity, log_proposal: LogDensity, proposals: Float[Array, "t *chains d"], key: Array
) -> Chains:
    """Run chains in parallel, starting at the first proposals.

    Both log densities map [*chains, d] to [*chains] and may omit their constants.
    """

    def log_weight(at: Array) -> Array:
        return log_target(at) - log_proposal(at)

    def step(now: tuple[Array, Array], given: tuple[Array, Array]) -> tuple[tuple, tuple]:
        (at, weight), (proposed, chance) = now, given
        other = log_weight(proposed)
        taken = chance < other - weight
        moved = jnp.where(taken[..., None], proposed, at)
        return (moved, jnp.where(taken, other, weight)), (moved, taken)

    first, rest = proposals[0], proposals[1:]
    chances = jnp.log(jax.random.uniform(key, rest.shape[:-1]))
    _, (samples, taken) = jax.lax.scan(step, (first, log_weight(first)), (rest, chances))
    return Chains(samples, taken.mean(axis=0))


PRIOR_TERMS = 4.0
"""The prior of a variance weighs as much as this many terms of the expected size."""


class NormalTerms(NamedTuple):
    """The sum of squares of some normal terms, the number of terms, and the prior guess of their variance."""

    squares: np.ndarray
    number: np.ndarray | float
    expected: np.ndarray | float


def draw_variances(terms: dict[str, NormalTerms], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw the variances from their inverse gamma posteriors.

    >>> known = {"noise": NormalTerms(np.array([2e6, 5e5]), 1e6, 1.0)}
    >>> draw_variances(known, np.random.default_rng(1))["noise"].round(1).tolist()
    [2.0, 0.5]
    """
    found = {}
    for name, (squares, number, expected) in terms.items():
        gamma = rng.gamma(0.5 * (PRIOR_TERMS + number), size=squares.shape)
        found[name] = 0.5 * (PRIOR_TERMS * expected + squares) / gamma
    return found
