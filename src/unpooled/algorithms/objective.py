"""Algorithm 1 and its collapsed sibling: J(θ) and its gradient from one exchange, or from two."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from unpooled.algorithms.exchange import Procedure, ask, pull_back
from unpooled.protocol.batch import in_chunks
from unpooled.protocol.messages import Tree
from unpooled.protocol.stage import Objective


def evaluate(name: str, objective: Objective, free: Tree, fixed: Tree) -> Procedure[tuple[Any, Tree, Tree]]:
    """J, ∂J/∂θ and the statistics for a batch of θ, in one exchange or two."""
    parameters = {"free": free, "fixed": fixed}
    if objective.one_exchange:
        batch = len(jax.tree.leaves(free)[0])
        reply = yield from pull_back(name, parameters, {"total": np.ones(batch), "each": {}})
        statistics = {"total": reply["value"], "each": {}}
        values, direct, _ = _open(objective, parameters, statistics)
    else:
        statistics = yield from ask(name, parameters)
        values, direct, cotangent = _open(objective, parameters, statistics)
        reply = yield from pull_back(name, parameters, cotangent)
    gradient = jax.tree.map(np.add, direct, reply["total"])
    return np.asarray(values), gradient, statistics


def _open(objective: Objective, parameters: Tree, statistics: Tree) -> tuple[Any, Tree, Tree]:
    batch = (parameters["free"], parameters["fixed"], statistics)
    return in_chunks(lambda chunk: _compiled_open(objective, chunk), batch)


@eqx.filter_jit
def _compiled_open(objective: Objective, batch: Tree) -> tuple[Any, Tree, Tree]:
    def one(leaves: Tree) -> tuple[Any, Tree, Tree]:
        free, fixed, statistics = leaves

        def value(free: Tree, statistics: Tree) -> Any:
            return objective.value({"free": free, "fixed": fixed}, statistics)

        result, (direct, cotangent) = jax.value_and_grad(value, argnums=(0, 1))(free, statistics)
        return result, direct, cotangent

    return jax.lax.map(one, batch)


def curvature(
    name: str, objective: Objective, free: Tree, fixed: Tree, step: float = 1e-5
) -> Procedure[np.ndarray]:
    """The Hessian of J at one θ, by differences of exact gradients, all directions in one message."""
    flat, unravel = flatten(jax.tree.map(lambda leaf: np.asarray(leaf)[None], free))
    size = flat.shape[1]
    points = np.concatenate([flat, flat + step * np.eye(size)])
    many = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], size + 1, axis=0), fixed)
    _, gradient, _ = yield from evaluate(name, objective, unravel(points), many)
    slopes = ravel(gradient)
    hessian = (slopes[1:] - slopes[0]) / step
    return 0.5 * (hessian + hessian.T)


def flatten(batch: Tree) -> tuple[np.ndarray, Any]:
    _, single = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], batch))
    unravel = jax.vmap(single)
    return ravel(batch), lambda points: jax.tree.map(np.asarray, unravel(jnp.asarray(points)))


def ravel(batch: Tree) -> np.ndarray:
    leaves = [np.asarray(leaf, dtype=float) for leaf in jax.tree.leaves(batch)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)
