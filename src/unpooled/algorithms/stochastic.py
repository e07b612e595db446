"""Adam or Adagrad on a stochastic bound, as in the paper."""

from __future__ import annotations

from typing import Literal

import jax
import numpy as np
import optax

from unpooled.algorithms.exchange import Procedure
from unpooled.algorithms.minima import Minima
from unpooled.algorithms.objective import evaluate
from unpooled.errors import FitError
from unpooled.protocol.messages import Tree
from unpooled.protocol.stage import Objective


def stochastic(
    name: str,
    objective: Objective,
    start: Tree,
    seed: int,
    *,
    rounds: int,
    rate: float,
    rule: Literal["adam", "adagrad"] = "adam",
) -> Procedure[Minima]:
    """Follow a stochastic bound: every round has its own key, folded from the seed and the round."""
    optimiser = optax.adam(rate) if rule == "adam" else optax.adagrad(rate)
    free = jax.tree.map(lambda leaf: np.asarray(leaf)[None], start)
    state = optimiser.init(free)
    update = jax.jit(optimiser.update)
    history: list[float] = []
    for number in range(rounds):
        key = jax.random.key_data(jax.random.fold_in(jax.random.key(seed), number))
        fixed = {"key": np.asarray(key)[None]}
        values, gradient, _ = yield from evaluate(name, objective, free, fixed)
        if not np.all(np.isfinite(values)):
            raise FitError(
                f"stage '{name}' must keep a finite bound", found=f"not finite in round {number + 1}",
                remedy="lower `learning_rate`",
            )
        moves, state = update(gradient, state)
        free = jax.tree.map(lambda leaf, move: np.asarray(leaf + move), free, moves)
        history.append(float(values[0]))
    tail = np.array(history[-max(1, len(history) // 10) :])
    return Minima(free, tail.mean(keepdims=True), None, rounds, tuple(history))
