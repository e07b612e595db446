"""A mean-field Gaussian posterior q over the parameters of networks and of other parts.

The prior is that of `unpooled.maths.networks` for weights, and N(0, 1) for all else.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.tree_util import DictKey
from jaxtyping import Array, Float

from unpooled.maths.networks import prior_sd
from unpooled.protocol.records import Arrays

START = 0.1
"""Initial sd of q as a fraction of the prior sd."""


def initial(parameters: Arrays) -> Arrays:
    """A narrow q about these parameters."""
    return {
        "mean": parameters,
        "log_sd": jax.tree.map(
            lambda leaf, sd: np.full(np.shape(leaf), np.log(START * sd)), parameters, prior_sds(parameters)
        ),
    }


def draw(posterior: Arrays, key: Array) -> Arrays:
    """Draw θ = mean + sd·ξ; a deterministic function of the key."""
    mean, unravel = ravel_pytree(posterior["mean"])
    log_sd, _ = ravel_pytree(posterior["log_sd"])
    # One call for all of ξ: a call per leaf takes XLA long to compile.
    return unravel(mean + jnp.exp(log_sd) * jax.random.normal(key, mean.shape))


def divergence(posterior: Arrays) -> Float[Array, ""]:
    """KL[q(θ)‖p(θ)]."""

    def of(mean: Array, log_sd: Array, prior: float) -> Array:
        ratio = log_sd - jnp.log(prior)
        return jnp.sum(0.5 * (jnp.exp(2.0 * ratio) + (mean / prior) ** 2 - 1.0) - ratio)

    terms = jax.tree.map(of, posterior["mean"], posterior["log_sd"], prior_sds(posterior["mean"]))
    return sum(jax.tree.leaves(terms), start=jnp.zeros(()))


def prior_sds(parameters: Arrays) -> Arrays:
    """The prior sd of each leaf."""

    def of(path: tuple[object, ...], leaf: Array) -> float:
        return prior_sd(np.shape(leaf)[-2]) if path[-1] == DictKey("weight") else 1.0

    return jax.tree.map_with_path(of, parameters)
