"""Small ReLU networks with a mean-field Gaussian posterior q over their parameters.

A network may have several independent heads, such as one per arm; their weights are stacked. The prior is
N(0, 2/inputs) for weights, which preserves the scale of the activations, and N(0, 1) for all else.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.tree_util import DictKey
from jaxtyping import Array, Float

from unpooled.protocol.records import Arrays

START = 0.1
"""Initial sd of q as a fraction of the prior sd."""


def make_network(
    rng: np.random.Generator, inputs: int, hidden: tuple[int, ...], outputs: int, *, heads: int
) -> Arrays:
    """Layers with weights from the prior and a last layer of zeros, so that the initial output is zero."""
    widths = (inputs, *hidden)
    layers = [
        {
            "weight": _prior_sd(before) * rng.normal(size=(heads, before, after)),
            "bias": np.zeros((heads, after)),
        }
        for before, after in zip(widths, hidden, strict=False)
    ]
    last = {"weight": np.zeros((heads, widths[-1], outputs)), "bias": np.zeros((heads, outputs))}
    return {"layers": [*layers, last]}


def begin(parameters: Arrays) -> Arrays:
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
        return _prior_sd(np.shape(leaf)[-2]) if path[-1] == DictKey("weight") else 1.0

    return jax.tree.map_with_path(of, parameters)


def _prior_sd(inputs: int) -> float:
    return float(np.sqrt(2.0 / max(inputs, 1)))


def apply(network: Arrays, inputs: Float[Array, "n d"]) -> Float[Array, "h n o"]:
    """Evaluate every head for every person."""
    *layers, last = network["layers"]
    hidden = inputs
    for layer in layers:
        hidden = jax.nn.relu(_line(layer, hidden))
    return _line(last, hidden)


def _line(layer: Arrays, inputs: Array) -> Array:
    return inputs @ layer["weight"] + layer["bias"][:, None]
