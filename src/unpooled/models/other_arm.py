"""Individual effects by draws of the outcome in the other arm, about its mean."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths.compilation import Program
from unpooled.maths.streams import key_data, stream
from unpooled.models.outcome_family import Family, individual_effect, predictor_of
from unpooled.protocol.rows import Rows


def other_arm(family: Family, means: np.ndarray, noise: np.ndarray, people: Rows, seed: int) -> np.ndarray:
    """ITE draws (2w − 1)(y − y_mis) [K, people], from draws [K, people, 2] of the mean outcomes and the noise
    variances of both arms."""
    keys = key_data(stream(seed, "individual effects", int(people.site)), len(means))
    return np.asarray(_other_arm(family, means, noise, people, keys))


@Program
def _other_arm(
    family: Family, means: Float[Array, "k n 2"], noise: Float[Array, " 2"], people: Rows, keys: Array
) -> Float[Array, "k n"]:
    predictor, noise = predictor_of(family, means, noise)

    def one(predictor: Array, key: Array) -> Array:
        return individual_effect(family, predictor, noise, people, jnp.zeros(()), key)

    return jax.vmap(one)(predictor, jax.random.wrap_key_data(keys))
