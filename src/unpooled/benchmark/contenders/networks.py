"""TARNet and CFR (Shalit, Johansson & Sontag 2017), reimplemented and tuned on validation people.

Both arms share a representation and have a head each; CFR penalises the distance between the arms'
representations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from unpooled.benchmark.contenders.cevae import cevae
from unpooled.benchmark.contenders.optimisation import dense, forward, train, weights_squared
from unpooled.benchmark.contenders.peer import Learner, PeerPrediction, PeerTable, Predict, peer
from unpooled.maths.kernels import squared_distances

SHARED, OWN = (32, 32), (16,)
DECAYS = (1e-4, 1e-3, 1e-2)
BALANCES = (0.1, 1.0)
STARTS = 2
HELD_BACK = 0.3
BATCH = 100
"""Number of people over whom the distance between the arms is computed in one step, as in the original."""
Distance = Callable[[jax.Array, jax.Array], jax.Array]


class TarnetData(NamedTuple):
    """Covariates, treatment, standardised outcome, and weights that give both arms the same influence."""

    x: jax.Array
    w: jax.Array
    y: jax.Array
    weight: jax.Array


def network(distance: Distance | None) -> Learner:
    """TARNet, or CFR if a distance between the arms' representations is given."""
    strengths = (0.0,) if distance is None else BALANCES
    grid = np.array([pair for pair in product(DECAYS, strengths) for _ in range(STARTS)])
    loss = partial(_loss, distance)

    def learner(table: PeerTable, valid: PeerTable, seed: int) -> Predict:
        centre, scale = table.y.mean(), table.y.std() or 1.0
        tables = (_people(table, centre, scale), _people(valid, centre, scale))
        found = train(_maker(table.x.shape[1]), loss, _check, grid, tables, seed)

        def predict(people: np.ndarray) -> PeerPrediction:
            control, treated = (np.asarray(arm) for arm in _arms(found, _represent(found, people)))
            return PeerPrediction(scale * (treated - control), centre + scale * control)

        return predict

    return learner


def without_help(learner: Learner) -> Learner:
    """The same learner, tuned on a part of its training table instead of the validation table."""

    def learn(table: PeerTable, valid: PeerTable, seed: int) -> Predict:
        order = np.random.default_rng(seed).permutation(len(table.w))
        cut = round((1.0 - HELD_BACK) * len(order))
        kept, back = (
            PeerTable(table.x[rows], table.w[rows], table.y[rows]) for rows in np.split(order, [cut])
        )
        return learner(kept, back, seed)

    return learn


def _people(table: PeerTable, centre: float, scale: float) -> TarnetData:
    share = np.clip(table.w.mean(), 0.01, 0.99)
    weight = np.where(table.w == 1, 0.5 / share, 0.5 / (1.0 - share))
    return TarnetData(*(jnp.asarray(part) for part in (table.x, table.w, (table.y - centre) / scale, weight)))


@cache
def _maker(columns: int) -> Callable[[jax.Array], dict]:
    def make(key: jax.Array) -> dict:
        shared, *heads = jax.random.split(key, 3)
        return {
            "shared": dense(shared, (columns, *SHARED)),
            "own": [dense(head, (SHARED[-1], *OWN, 1)) for head in heads],
        }

    return make


def _loss(
    distance: Distance | None, parameters: dict, setting: jax.Array, key: jax.Array, people: TarnetData
) -> jax.Array:
    decay, strength = setting[0], setting[1]
    represented = _represent(parameters, people.x)
    total = _error(parameters, represented, people) + decay * weights_squared(parameters)
    if distance is None:
        return total
    some = jax.random.permutation(key, len(people.w))[:BATCH]
    return total + strength * distance(represented[some], people.w[some])


def _check(parameters: dict, people: TarnetData) -> jax.Array:
    return _error(parameters, _represent(parameters, people.x), people)


def _error(parameters: dict, represented: jax.Array, people: TarnetData) -> jax.Array:
    control, treated = _arms(parameters, represented)
    factual = jnp.where(people.w == 1, treated, control)
    return jnp.mean(people.weight * (factual - people.y) ** 2)


def _represent(parameters: dict, x: jax.Array | np.ndarray) -> jax.Array:
    return jax.nn.elu(forward(parameters["shared"], jnp.asarray(x, jnp.float32)))


def _arms(parameters: dict, represented: jax.Array) -> tuple[jax.Array, jax.Array]:
    control, treated = (forward(head, represented)[:, 0] for head in parameters["own"])
    return control, treated


def mmd(represented: jax.Array, w: jax.Array) -> jax.Array:
    """Squared maximum mean discrepancy between the arms, with a Gaussian kernel of the mean distance."""
    distances = squared_distances(represented, represented)
    kernel = jnp.exp(-distances / (jax.lax.stop_gradient(jnp.mean(distances)) + 1e-6))
    sign = jnp.where(w == 1, 1.0 / jnp.maximum(jnp.sum(w == 1), 1), -1.0 / jnp.maximum(jnp.sum(w == 0), 1))
    return sign @ kernel @ sign


def wasserstein(represented: jax.Array, w: jax.Array, *, steps: int = 10) -> jax.Array:
    """Entropic Wasserstein distance between the arms by a few Sinkhorn steps; the plan has no gradient."""
    distances = jnp.sqrt(squared_distances(represented, represented) + 1e-10)
    control = (w == 0) / jnp.maximum(jnp.sum(w == 0), 1)
    treated = (w == 1) / jnp.maximum(jnp.sum(w == 1), 1)
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
    "tarnet-without-help": peer(without_help(network(None))),
    "cfr-wasserstein-without-help": peer(without_help(network(wasserstein))),
    "cevae": peer(cevae),
}
