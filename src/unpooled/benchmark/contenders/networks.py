"""TARNet and its balanced kin (Shalit, Johansson & Sontag 2017), written anew and tuned on validation people.

A representation shared by both arms, a head for each; CFR adds a distance between the arms' representations.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np

from unpooled.benchmark.contenders.cevae import cevae
from unpooled.benchmark.contenders.peer import Learner, Predict, Said, Table, peer
from unpooled.benchmark.contenders.training import dense, forward, train, weights_squared

SHARED, OWN = (64, 64), (32,)
DECAYS = (1e-4, 1e-3, 1e-2)
STARTS = 3
BALANCES = (0.1, 1.0)
Distance = Callable[[jax.Array, jax.Array], jax.Array]


def network(distance: Distance | None) -> Learner:
    """TARNet, or CFR with a distance between the arms' representations."""

    def learner(train_table: Table, valid: Table, seed: int) -> Predict:
        centre, scale = train_table.y.mean(), train_table.y.std() or 1.0
        x, w = jnp.asarray(train_table.x), jnp.asarray(train_table.w)
        y = jnp.asarray((train_table.y - centre) / scale)
        new_x, new_w = jnp.asarray(valid.x), jnp.asarray(valid.w)
        new_y = jnp.asarray((valid.y - centre) / scale)
        # Both arms count alike, as in the paper that proposed it.
        share = jnp.mean(w)
        balance = jnp.where(w == 1, 0.5 / share, 0.5 / (1.0 - share))
        new_share = jnp.clip(jnp.mean(new_w), 0.01, 0.99)
        new_balance = jnp.where(new_w == 1, 0.5 / new_share, 0.5 / (1.0 - new_share))

        def make(key: jax.Array) -> dict:
            shared, *heads = jax.random.split(key, 3)
            return {
                "shared": dense(shared, (x.shape[1], *SHARED)),
                "own": [dense(head, (SHARED[-1], *OWN, 1)) for head in heads],
            }

        def loss(parameters: dict, setting: jax.Array, key: jax.Array) -> jax.Array:
            decay, strength = setting[0], setting[1]
            represented = _represent(parameters, x)
            error = jnp.mean(balance * (_factual(parameters, represented, w) - y) ** 2)
            penalty = decay * weights_squared(parameters)
            if distance is None:
                return error + penalty
            return error + penalty + strength * distance(represented, w)

        def check(parameters: dict) -> jax.Array:
            predicted = _factual(parameters, _represent(parameters, new_x), new_w)
            return jnp.mean(new_balance * (predicted - new_y) ** 2)

        strengths = (0.0,) if distance is None else BALANCES
        grid = np.array([pair for pair in product(DECAYS, strengths) for _ in range(STARTS)])
        found = train(make, loss, check, grid, seed)

        def predict(people: np.ndarray) -> Said:
            control, treated = (
                np.asarray(arm) for arm in _arms(found, _represent(found, jnp.asarray(people)))
            )
            return Said(scale * (treated - control), centre + scale * control)

        return predict

    return learner


def _represent(parameters: dict, x: jax.Array) -> jax.Array:
    return jax.nn.elu(forward(parameters["shared"], x))


def _arms(parameters: dict, represented: jax.Array) -> tuple[jax.Array, jax.Array]:
    control, treated = (forward(head, represented)[:, 0] for head in parameters["own"])
    return control, treated


def _factual(parameters: dict, represented: jax.Array, w: jax.Array) -> jax.Array:
    control, treated = _arms(parameters, represented)
    return jnp.where(w == 1, treated, control)


def _squared_distances(left: jax.Array, right: jax.Array) -> jax.Array:
    squares = jnp.sum(left**2, axis=1)[:, None] + jnp.sum(right**2, axis=1)[None, :]
    return jnp.maximum(squares - 2.0 * left @ right.T, 0.0)


def mmd(represented: jax.Array, w: jax.Array) -> jax.Array:
    """Squared maximum mean discrepancy between the arms, Gaussian kernel of the mean distance."""
    distances = _squared_distances(represented, represented)
    kernel = jnp.exp(-distances / (jax.lax.stop_gradient(jnp.mean(distances)) + 1e-6))
    sign = jnp.where(w == 1, 1.0 / jnp.sum(w == 1), -1.0 / jnp.sum(w == 0))
    return sign @ kernel @ sign


def wasserstein(represented: jax.Array, w: jax.Array, *, steps: int = 10) -> jax.Array:
    """Entropic Wasserstein distance between the arms: a few Sinkhorn steps, the plan then held fixed."""
    distances = jnp.sqrt(_squared_distances(represented, represented) + 1e-10)
    control = (w == 0) / jnp.sum(w == 0)
    treated = (w == 1) / jnp.sum(w == 1)
    kernel = jnp.exp(-10.0 * distances / (jnp.mean(distances) + 1e-6)) + 1e-12
    scaling = other = jnp.ones_like(control)
    for _ in range(steps):
        other = treated / (kernel.T @ (scaling * (control > 0)) + 1e-12)
        scaling = control / (kernel @ other + 1e-12)
    plan = jax.lax.stop_gradient(scaling[:, None] * kernel * other[None, :])
    return 2.0 * jnp.sum(plan * distances)


ESTIMATORS = {
    "tarnet": peer(network(None)),
    "cfr-mmd": peer(network(mmd)),
    "cfr-wasserstein": peer(network(wasserstein)),
    "cevae": peer(cevae),
}
