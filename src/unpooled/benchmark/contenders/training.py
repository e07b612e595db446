"""Small networks on small tables: full-batch Adam, the best step and the best setting by validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import unpooled.maths  # noqa: F401  float64, as everywhere

Loss = Callable[[Any, jax.Array], jax.Array]
STEPS, RATE = 1500, 5e-3


def dense(key: jax.Array, sizes: tuple[int, ...]) -> list[dict[str, jax.Array]]:
    """Layers of a perceptron, He's scale."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"weight": jax.random.normal(k, (a, b)) * jnp.sqrt(2.0 / a), "bias": jnp.zeros(b)}
        for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def forward(layers: list[dict[str, jax.Array]], inputs: jax.Array) -> jax.Array:
    """ELU between the layers, none after the last."""
    for layer in layers[:-1]:
        inputs = jax.nn.elu(inputs @ layer["weight"] + layer["bias"])
    return inputs @ layers[-1]["weight"] + layers[-1]["bias"]


def weights_squared(parameters: Any) -> jax.Array:
    """Σ weight², biases free."""
    leaves = jax.tree_util.tree_leaves_with_path(parameters)
    return sum((jnp.sum(leaf**2) for path, leaf in leaves if "weight" in str(path[-1])), jnp.zeros(()))


def train(
    make: Callable[[jax.Array], Any],
    loss: Callable[[Any, jax.Array, jax.Array], jax.Array],
    check: Callable[[Any], jax.Array],
    settings: np.ndarray,
    seed: int,
) -> Any:
    """Every setting (a row that `loss` reads) from a start of its own; the best by `check` is kept.

    `loss(parameters, setting, key)` is minimised; `check(parameters)` is the validation error.
    """
    keys = jax.random.split(jax.random.key(seed), len(settings))
    # One setting after another: compiled once, and no larger in memory than one network.
    found, errors = jax.lax.map(
        lambda each: _train_one(make, loss, check, *each), (keys, jnp.asarray(settings))
    )
    best = int(jnp.argmin(errors))
    return jax.tree.map(lambda leaf: np.asarray(leaf[best]), found)


def _train_one(make: Any, loss: Any, check: Any, key: jax.Array, setting: jax.Array) -> tuple[Any, jax.Array]:
    start, steps = jax.random.split(key)
    parameters = make(start)
    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, STEPS, alpha=0.02))

    def step(carry: Any, step_key: jax.Array) -> tuple[Any, None]:
        parameters, state, best, best_error = carry
        gradient = jax.grad(loss)(parameters, setting, step_key)
        updates, state = optimiser.update(gradient, state)
        parameters = optax.apply_updates(parameters, updates)
        error = check(parameters)
        better = error < best_error
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), parameters, best)
        return (parameters, state, best, jnp.minimum(error, best_error)), None

    carry = (parameters, optimiser.init(parameters), parameters, jnp.inf)
    (_, _, best, error), _ = jax.lax.scan(step, carry, jax.random.split(steps, STEPS))
    return best, error
