"""Effects of people beside their table, under draws of the linear outcome regressions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths.streams import individual_key
from unpooled.methods.aipw.stages import features
from unpooled.models.outcome_family import Gaussian, individual_effect
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows


def conditional(draws: Arrays, people: Rows) -> np.ndarray:
    """Difference of the two regressions [K, people]; spread is that of their coefficients alone."""
    both = draws["outcome"]
    return (both[:, 1] - both[:, 0]) @ np.asarray(features(people.covariates)).T


def individual(draws: Arrays, people: Rows, seed: int) -> np.ndarray:
    """(2w − 1)(y − y_mis) [K, people]: y_mis comes from the other arm's regression with normal noise."""
    both = np.swapaxes(draws["outcome"] @ np.asarray(features(people.covariates)).T, 1, 2)
    key = individual_key(seed, int(people.site))
    return np.asarray(_individual(both, draws["noise"], people, jax.random.split(key, len(both))))


@jax.jit
def _individual(both: Array, noise: Array, people: Rows, keys: Array) -> Float[Array, "k n"]:
    def one(both: Array, noise: Array, key: Array) -> Array:
        return individual_effect(Gaussian(), both, noise, people, jnp.zeros(()), key)

    return jax.vmap(one)(both, noise, keys)
