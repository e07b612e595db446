"""Small ReLU networks with one head per arm; without hidden layers they are linear."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths.streams import stream

Layer = dict[str, Any]
Network = dict[str, Any]


def make_network(inputs: int, shared: tuple[int, ...], own: tuple[int, ...], seed: int) -> Network:
    """Shared layers followed by each arm's own; the last layer starts at zero, so the initial output is 0."""
    rng = stream(seed, "mean network")
    widths = (inputs, *shared)
    trunk = [_layer(rng, a, b) for a, b in zip(widths, shared, strict=False)]
    ends = (widths[-1], *own)
    hidden = [[_layer(rng, a, b) for a, b in zip(ends, own, strict=False)] for _ in range(2)]
    heads = [[*layers, _zeros(ends[-1], 1)] for layers in hidden]
    return {"shared": trunk, "own": heads}


def _layer(rng: np.random.Generator, inputs: int, outputs: int) -> Layer:
    return {"weight": rng.normal(0.0, np.sqrt(2.0 / inputs), (inputs, outputs)), "bias": np.zeros(outputs)}


def _zeros(inputs: int, outputs: int) -> Layer:
    return {"weight": np.zeros((inputs, outputs)), "bias": np.zeros(outputs)}


def apply(network: Network, inputs: Float[Array, "n d"]) -> Float[Array, "n 2"]:
    """μ₀(x), μ₁(x)."""
    hidden = inputs
    for layer in network["shared"]:
        hidden = jax.nn.relu(_line(layer, hidden))
    return jnp.concatenate([_head(layers, hidden) for layers in network["own"]], axis=1)


def _head(layers: list[Layer], hidden: Array) -> Array:
    for layer in layers[:-1]:
        hidden = jax.nn.relu(_line(layer, hidden))
    return _line(layers[-1], hidden)


def _line(layer: Layer, inputs: Array) -> Array:
    return inputs @ layer["weight"] + layer["bias"]


def log_prior(network: Network) -> Float[Array, ""]:
    """The log density of weights ~ N(0, 2/inputs) and biases ~ N(0, 1), up to a constant."""
    layers = [*network["shared"], *(layer for head in network["own"] for layer in head)]
    weights = [0.5 * one["weight"].shape[0] * jnp.sum(one["weight"] ** 2) for one in layers]
    biases = [jnp.sum(one["bias"] ** 2) for one in layers]
    return -0.5 * jnp.sum(jnp.stack(weights + biases))
