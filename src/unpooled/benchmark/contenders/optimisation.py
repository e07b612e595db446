"""Small networks on small tables: full-batch Adam, the best step and the best setting by validation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree

Tree = Any
CHECKS, BETWEEN, RATE = 60, 25, 5e-3
"""How often the validation error is looked at, steps in between, and the first step size."""


def dense(key: jax.Array, sizes: tuple[int, ...]) -> list[dict[str, jax.Array]]:
    """Layers of a perceptron, He's scale; single precision, as networks are trained everywhere."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {
            "weight": jax.random.normal(k, (a, b), jnp.float32) * np.sqrt(2.0 / a).astype(np.float32),
            "bias": jnp.zeros(b, jnp.float32),
        }
        for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def forward(layers: list[dict[str, jax.Array]], inputs: jax.Array) -> jax.Array:
    """ELU between the layers, none after the last."""
    for layer in layers[:-1]:
        inputs = jax.nn.elu(inputs @ layer["weight"] + layer["bias"])
    return inputs @ layers[-1]["weight"] + layers[-1]["bias"]


def weights_squared(parameters: PyTree) -> jax.Array:
    """Σ weight², biases free."""
    leaves = jax.tree_util.tree_leaves_with_path(parameters)
    return sum((jnp.sum(leaf**2) for path, leaf in leaves if "weight" in str(path[-1])), jnp.zeros(()))


def train(
    make: Callable[[jax.Array], Tree],
    loss: Callable[[Tree, jax.Array, jax.Array, Tree], jax.Array],
    check: Callable[[Tree, Tree], jax.Array],
    settings: np.ndarray,
    tables: tuple[Tree, Tree],
    seed: int,
) -> Tree:
    """Every setting (a row that `loss` reads) from a start of its own, side by side; the best by `check`.

    `loss(parameters, setting, key, training table)` is minimised, `check(parameters, validation table)` is
    the validation error. Both are a module's own functions, so tables of one shape share a compilation.
    """
    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (settings, tables))
    keys = jax.random.split(jax.random.key(seed), len(settings))
    found, errors = _train_all(make, loss, check, keys, *single)
    best = int(jnp.argmin(errors))
    return jax.tree.map(lambda leaf: np.asarray(leaf[best]), found)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _train_all(make: Any, loss: Any, check: Any, keys: jax.Array, settings: jax.Array, tables: Tree) -> Tree:
    return jax.vmap(lambda key, setting: _train_one(make, loss, check, key, setting, *tables))(keys, settings)


def _train_one(
    make: Any, loss: Any, check: Any, key: jax.Array, setting: jax.Array, table: Tree, valid: Tree
) -> tuple[Tree, jax.Array]:
    start, steps = jax.random.split(key)
    parameters = make(start)
    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, CHECKS * BETWEEN, alpha=0.02))

    def step(carry: Tree, step_key: jax.Array) -> tuple[Tree, None]:
        parameters, state = carry
        gradient = jax.grad(loss)(parameters, setting, step_key, table)
        updates, state = optimiser.update(gradient, state)
        return (optax.apply_updates(parameters, updates), state), None

    def stretch(carry: Tree, step_keys: jax.Array) -> tuple[Tree, None]:
        moving, best, best_error = carry
        moving, _ = jax.lax.scan(step, moving, step_keys)
        error = check(moving[0], valid)
        better = error < best_error
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), moving[0], best)
        return (moving, best, jnp.minimum(error, best_error)), None

    carry = ((parameters, optimiser.init(parameters)), parameters, jnp.float32(jnp.inf))
    (_, best, error), _ = jax.lax.scan(stretch, carry, jax.random.split(steps, (CHECKS, BETWEEN)))
    return best, error
