"""Metropolis–Hastings with an independence proposal: draws of q filtered until they are draws of p.

A proposal that knows nothing of where the chain stands is accepted with probability min(1, r'/r), where
r = p/q is how much too rarely q goes there. Chains mix as fast as q is near p, whatever the dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

LogDensity = Callable[[Array], Array]


class Chains(NamedTuple):
    """Every chain after every step, and the share of its proposals that it took."""

    samples: Float[Array, "t *chains d"]
    acceptance: Float[Array, "*chains"]

    @property
    def last(self) -> Float[Array, "*chains d"]:
        return self.samples[-1]


def independence(
    log_target: LogDensity, log_proposal: LogDensity, proposals: Float[Array, "t *chains d"], key: Array
) -> Chains:
    """Chains side by side, begun at the first proposals; densities need no constants.

    Both densities take [*chains, d] and give [*chains], so people and chains go through in one call.
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
