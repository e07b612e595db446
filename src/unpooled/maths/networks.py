"""Small ReLU networks; without hidden layers they are linear.

Heads, such as one per arm, are independent networks whose weights are stacked, or branches of a network whose
first layers are shared. The prior is N(0, 2/inputs) for weights, which preserves the scale of the
activations, and N(0, 1) for biases. Last layers start at zero, so that the initial output is zero.
"""

from __future__ import annotations

from typing import TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths.streams import stream


class Layer(TypedDict):
    """A layer [inputs, outputs], or a stack of them [head, inputs, outputs]: NumPy before, JAX in a fit."""

    weight: np.ndarray | Array
    bias: np.ndarray | Array


class BranchedNetwork(TypedDict):
    """Shared layers followed by each arm's own."""

    shared: list[Layer]
    own: list[list[Layer]]


def make_stacked(
    rng: np.random.Generator, inputs: int, hidden: tuple[int, ...], outputs: int, *, heads: int
) -> list[Layer]:
    """The layers of independent networks, stacked by head."""
    layers = _hidden_layers(rng, inputs, hidden, heads)
    return [*layers, _layer(np.zeros((heads, (inputs, *hidden)[-1], outputs)))]


def apply(layers: list[Layer], inputs: Float[Array, "*h n d"]) -> Float[Array, "*h n o"]:
    """The outputs for every person, by head if the layers are stacked."""
    return _linear(layers[-1], _activations(layers[:-1], inputs))


def make_branched(inputs: int, shared: tuple[int, ...], own: tuple[int, ...], seed: int) -> BranchedNetwork:
    """A network that branches into the two arms after its shared layers."""
    rng = stream(seed, "mean network")
    trunk = _hidden_layers(rng, inputs, shared)
    width = (inputs, *shared)[-1]
    hidden = [_hidden_layers(rng, width, own) for _ in range(2)]
    last = (width, *own)[-1]
    return {"shared": trunk, "own": [[*layers, _layer(np.zeros((last, 1)))] for layers in hidden]}


def apply_branched(network: BranchedNetwork, inputs: Float[Array, "n d"]) -> Float[Array, "n 2"]:
    """μ₀(x), μ₁(x)."""
    hidden = _activations(network["shared"], inputs)
    return jnp.concatenate([apply(layers, hidden) for layers in network["own"]], axis=1)


def log_prior(network: BranchedNetwork) -> Float[Array, ""]:
    """The log density of weights and biases, up to a constant."""
    layers = [*network["shared"], *(layer for head in network["own"] for layer in head)]
    weights = [0.5 * one["weight"].shape[0] * jnp.sum(one["weight"] ** 2) for one in layers]
    biases = [jnp.sum(one["bias"] ** 2) for one in layers]
    return -0.5 * jnp.sum(jnp.stack(weights + biases))


def prior_sd(inputs: int) -> float:
    """The prior sd of a weight."""
    return float(np.sqrt(2.0 / max(inputs, 1)))


def _hidden_layers(
    rng: np.random.Generator, inputs: int, hidden: tuple[int, ...], *stack: int
) -> list[Layer]:
    """Layers with weights from the prior."""
    pairs = zip((inputs, *hidden), hidden, strict=False)
    return [_layer(prior_sd(before) * rng.normal(size=(*stack, before, after))) for before, after in pairs]


def _layer(weight: np.ndarray) -> Layer:
    return {"weight": weight, "bias": np.zeros((*weight.shape[:-2], weight.shape[-1]))}


def _activations(layers: list[Layer], inputs: Array) -> Array:
    for layer in layers:
        inputs = jax.nn.relu(_linear(layer, inputs))
    return inputs


def _linear(layer: Layer, inputs: Array) -> Array:
    return inputs @ layer["weight"] + layer["bias"][..., None, :]
