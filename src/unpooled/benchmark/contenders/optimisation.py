"""Small networks trained by full-batch Adam; step and hyperparameters are chosen by validation error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

Parameters = dict
"""The weights of a model's networks, by name."""
Data = TypeVar("Data")
"""What a model's loss reads, as a pytree of arrays."""
CHECKS, BETWEEN, RATE = 60, 25, 5e-3
"""Number of validation checks, steps between two checks, and the initial learning rate."""


def dense(key: jax.Array, sizes: tuple[int, ...]) -> list[dict[str, jax.Array]]:
    """The layers of a perceptron with He initialisation, in single precision as is usual for networks."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {
            "weight": jax.random.normal(k, (a, b), jnp.float32) * np.sqrt(2.0 / a).astype(np.float32),
            "bias": jnp.zeros(b, jnp.float32),
        }
        for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def forward(layers: list[dict[str, jax.Array]], inputs: jax.Array) -> jax.Array:
    """Apply the layers, with an ELU after each except the last."""
    for layer in layers[:-1]:
        inputs = jax.nn.elu(inputs @ layer["weight"] + layer["bias"])
    return inputs @ layers[-1]["weight"] + layers[-1]["bias"]


def weights_squared(parameters: object) -> jax.Array:
    """Σ weight² over all layers, without biases."""
    leaves = jax.tree_util.tree_leaves_with_path(parameters)
    return sum((jnp.sum(leaf**2) for path, leaf in leaves if "weight" in str(path[-1])), jnp.zeros(()))


def train(
    make: Callable[[jax.Array], Parameters],
    loss: Callable[[Parameters, jax.Array, jax.Array, Data], jax.Array],
    check: Callable[[Parameters, Data], jax.Array],
    settings: np.ndarray,
    tables: tuple[Data, Data],
    seed: int,
) -> Parameters:
    """Train with every setting (a row of hyperparameters) in parallel, and return the best by `check`.

    `loss(parameters, setting, key, training data)` is minimised and `check(parameters, validation data)` is
    the validation error. Pass module-level functions, so that tables of equal shape share a compilation.
    """
    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (settings, tables))
    keys = jax.random.split(jax.random.key(seed), len(settings))
    found, errors = _train_all(make, loss, check, keys, *single)
    best = int(jnp.argmin(errors))
    return jax.tree.map(lambda leaf: np.asarray(leaf[best]), found)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _train_all(
    make: Callable[[jax.Array], Parameters],
    loss: Callable[[Parameters, jax.Array, jax.Array, Data], jax.Array],
    check: Callable[[Parameters, Data], jax.Array],
    keys: jax.Array,
    settings: jax.Array,
    tables: tuple[Data, Data],
) -> tuple[Parameters, jax.Array]:
    return jax.vmap(lambda key, setting: _train_one(make, loss, check, key, setting, *tables))(keys, settings)


def _train_one(
    make: Callable[[jax.Array], Parameters],
    loss: Callable[[Parameters, jax.Array, jax.Array, Data], jax.Array],
    check: Callable[[Parameters, Data], jax.Array],
    key: jax.Array,
    setting: jax.Array,
    table: Data,
    valid: Data,
) -> tuple[Parameters, jax.Array]:
    start, steps = jax.random.split(key)
    parameters = make(start)
    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, CHECKS * BETWEEN, alpha=0.02))

    def step(carry: tuple, step_key: jax.Array) -> tuple[tuple, None]:
        parameters, state = carry
        gradient = jax.grad(loss)(parameters, setting, step_key, table)
        updates, state = optimiser.update(gradient, state)
        return (optax.apply_updates(parameters, updates), state), None

    def stretch(carry: tuple, step_keys: jax.Array) -> tuple[tuple, None]:
        moving, best, best_error = carry
        moving, _ = jax.lax.scan(step, moving, step_keys)
        error = check(moving[0], valid)
        better = error < best_error
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), moving[0], best)
        return (moving, best, jnp.minimum(error, best_error)), None

    carry = ((parameters, optimiser.init(parameters)), parameters, jnp.float32(jnp.inf))
    (_, best, error), _ = jax.lax.scan(stretch, carry, jax.random.split(steps, (CHECKS, BETWEEN)))
    return best, error
