"""Conditional and individual effects at a site, under draws of the outcome regressions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths.compilation import Program
from unpooled.maths.streams import key_data, stream
from unpooled.methods.aipw.stages import features
from unpooled.models.outcome_family import Family, Gaussian, individual_effect
from unpooled.protocol.records import Arrays, Draws
from unpooled.protocol.rows import Rows

REGRESSIONS_ELSEWHERE = (
    "The population's outcomes follow the outcome regressions of one of the study's sites, drawn at random "
    "for every draw. Nothing corrects an error of these regressions: the estimate is not doubly robust "
    "elsewhere."
)
"""What `elsewhere` assumes, in words."""


def conditional(family: Family, draws: Arrays, people: Rows) -> np.ndarray:
    """CATE draws [K, people]: the difference of the two regressions; only their coefficients vary."""
    both = draws["outcome"]
    if isinstance(family, Gaussian):
        return (both[:, 1] - both[:, 0]) @ np.asarray(features(people.covariates)).T
    means = family.mean(jnp.asarray(both @ np.asarray(features(people.covariates)).T))
    return np.asarray(family.standardised(means[:, 1] - means[:, 0]))


def elsewhere(family: Family, draws: Draws, people: Rows, seed: int) -> np.ndarray:
    """Draws [K, people, 2] of the regressions at a site that took no part: those of one of the sites, drawn
    anew for every draw."""
    outcome = np.asarray(draws.by_site["outcome"])
    chosen = stream(seed, "a site elsewhere").integers(outcome.shape[1], size=len(outcome))
    both = outcome[np.arange(len(outcome)), chosen]
    predictor = np.swapaxes(both @ np.asarray(features(people.covariates)).T, 1, 2)
    return np.asarray(family.standardised_mean(family.mean(jnp.asarray(predictor))))


def individual(family: Family, draws: Arrays, people: Rows, seed: int) -> np.ndarray:
    """ITE draws (2w − 1)(y − y_mis) [K, people], with y_mis drawn from the other arm's regression."""
    both = np.swapaxes(draws["outcome"] @ np.asarray(features(people.covariates)).T, 1, 2)
    keys = key_data(stream(seed, "individual effects", int(people.site)), len(both))
    return np.asarray(_individual(family, both, draws["noise"], people, keys))


@Program
def _individual(family: Family, both: Array, noise: Array, people: Rows, keys: Array) -> Float[Array, "k n"]:
    def one(both: Array, noise: Array, key: Array) -> Array:
        return individual_effect(family, both, noise, people, jnp.zeros(()), key)

    return jax.vmap(one)(both, noise, jax.random.wrap_key_data(keys))
