"""A small CEVAE (Louizos et al. 2017), with a latent confounder of covariates, treatment and outcome."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from unpooled.benchmark.contenders.optimisation import dense, forward, train, weights_squared
from unpooled.benchmark.contenders.peer import PeerPrediction, PeerTable, Predict

LATENT, HIDDEN, DRAWS = 20, 48, 50
GRID = np.array(list(product((1e-4, 1e-3, 1e-2), (1.0, 0.1))))
"""Weight decay, and the weight of the divergence in the bound (1 in the original paper)."""


class CevaeData(NamedTuple):
    """Covariates, treatment and standardised outcome."""

    x: jax.Array
    w: jax.Array
    y: jax.Array


def cevae(table: PeerTable, valid: PeerTable, seed: int) -> Predict:
    """Train the bound and the auxiliary networks q(w|x) and q(y|x,w); effects are averaged over z | x."""
    centre, scale = table.y.mean(), table.y.std() or 1.0
    tables = (_people(table, centre, scale), _people(valid, centre, scale))
    found = train(_maker(table.x.shape[1]), _loss, _check, GRID, tables, seed)

    def predict(people: np.ndarray) -> PeerPrediction:
        x = jnp.asarray(people, jnp.float32)
        control, treated = (np.asarray(arm) for arm in _effects(found, x, jax.random.key(seed), DRAWS))
        return PeerPrediction(scale * (treated - control), centre + scale * control)

    return predict


def _people(table: PeerTable, centre: float, scale: float) -> CevaeData:
    return CevaeData(*(jnp.asarray(part) for part in (table.x, table.w, (table.y - centre) / scale)))


@cache
def _maker(columns: int) -> Callable[[jax.Array], dict]:
    def make(key: jax.Array) -> dict:
        keys = iter(jax.random.split(key, 9))
        return {
            "decode_x": dense(next(keys), (LATENT, HIDDEN, 2 * columns)),
            "decode_w": dense(next(keys), (LATENT, HIDDEN, 1)),
            "decode_y": [dense(next(keys), (LATENT, HIDDEN, 1)) for _ in range(2)],
            "encode": dense(next(keys), (columns + 2, HIDDEN, 2 * LATENT)),
            "guess_w": dense(next(keys), (columns, HIDDEN, 1)),
            "guess_y": [dense(next(keys), (columns, HIDDEN, 1)) for _ in range(2)],
            "noise": {"log": jnp.zeros(2, jnp.float32)},
        }

    return make


def _loss(parameters: dict, setting: jax.Array, key: jax.Array, people: CevaeData) -> jax.Array:
    x, w, y = people
    mean, sd = _encode(parameters, x, w, y)
    z = mean + sd * jax.random.normal(key, mean.shape, jnp.float32)
    location, log_sd = jnp.split(forward(parameters["decode_x"], z), 2, axis=1)
    likelihood = _normal(x, location, jnp.clip(log_sd, -3.0, 2.0)).sum(axis=1)
    likelihood += _bernoulli(w, forward(parameters["decode_w"], z)[:, 0])
    likelihood += _normal(y, _outcome(parameters["decode_y"], z, w), parameters["noise"]["log"][0])
    divergence = 0.5 * jnp.sum(mean**2 + sd**2 - 1.0 - 2.0 * jnp.log(sd), axis=1)
    helpers = _bernoulli(w, forward(parameters["guess_w"], x)[:, 0])
    helpers += _normal(y, _outcome(parameters["guess_y"], x, w), parameters["noise"]["log"][1])
    return -jnp.mean(likelihood - setting[1] * divergence + helpers) + setting[0] * weights_squared(
        parameters
    )


def _check(parameters: dict, people: CevaeData) -> jax.Array:
    control, treated = _effects(parameters, people.x, jax.random.key(0), 4)
    return jnp.mean((jnp.where(people.w == 1, treated, control) - people.y) ** 2)


def _encode(parameters: dict, x: jax.Array, w: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    # One encoder for both arms; with one each, z could mean different things in the two decoders.
    mean, log_sd = jnp.split(forward(parameters["encode"], jnp.column_stack([x, w, y])), 2, axis=1)
    return mean, jnp.exp(jnp.clip(log_sd, -5.0, 2.0))


def _outcome(heads: list, inputs: jax.Array, w: jax.Array) -> jax.Array:
    control, treated = (forward(head, inputs)[:, 0] for head in heads)
    return jnp.where(w == 1, treated, control)


def _effects(parameters: dict, x: jax.Array, key: jax.Array, draws: int) -> tuple[jax.Array, jax.Array]:
    """E[y | do(w), x]: w and y are drawn given x, z given all of them, and both arms are decoded from z."""

    def one(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        for_w, for_y, for_z = jax.random.split(key, 3)
        w = jax.random.bernoulli(for_w, jax.nn.sigmoid(forward(parameters["guess_w"], x)[:, 0])).astype(
            x.dtype
        )
        sd = jnp.exp(parameters["noise"]["log"][1])
        y = _outcome(parameters["guess_y"], x, w) + sd * jax.random.normal(for_y, w.shape, x.dtype)
        mean, spread = _encode(parameters, x, w, y)
        z = mean + spread * jax.random.normal(for_z, mean.shape, x.dtype)
        control, treated = (forward(head, z)[:, 0] for head in parameters["decode_y"])
        return control, treated

    arms = jax.lax.map(one, jax.random.split(key, draws))
    return arms[0].mean(axis=0), arms[1].mean(axis=0)


def _normal(value: jax.Array, mean: jax.Array, log_sd: jax.Array) -> jax.Array:
    return -0.5 * ((value - mean) / jnp.exp(log_sd)) ** 2 - log_sd


def _bernoulli(value: jax.Array, logit: jax.Array) -> jax.Array:
    return value * logit - jax.nn.softplus(logit)
