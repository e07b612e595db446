"""Adam or Adagrad on a stochastic bound, as in the paper, until the smoothed bound stops improving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

import jax
import numpy as np

from unpooled.errors import FitError
from unpooled.optimise.objective import Minima, evaluate, flatten, ravel
from unpooled.optimise.procedure import Procedure, noted
from unpooled.protocol.records import Arrays
from unpooled.protocol.stage import Objective

if TYPE_CHECKING:
    import optax


@dataclass(frozen=True)
class Plateau:
    """Stopping rule: the mean over a window improves on the previous window by less than `errors` s.e."""

    window: int = 50
    errors: float = 2.0

    def reached(self, history: Sequence[float]) -> bool:
        """Checked once per window and from the values alone, so that a replay stops in the same round."""
        if len(history) < 2 * self.window or len(history) % self.window:
            return False
        last = np.asarray(history[-self.window :])
        before = np.asarray(history[-2 * self.window : -self.window])
        error = np.sqrt((last.var(ddof=1) + before.var(ddof=1)) / self.window)
        return bool(before.mean() - last.mean() < self.errors * error)


PLATEAU = Plateau()


USUAL_ROUNDS = 300
"""Rounds after which the smoothed bound is taken to have stopped improving. A guess: FedCI took 250 in
the one study measured (3 × 100 people); CausalRFF and CausalFI were not measured."""


def usual_rounds(most: int) -> int:
    """The rounds that `stochastic` is expected to take."""
    return min(most, USUAL_ROUNDS)


def stochastic(
    name: str,
    objective: Objective,
    start: Arrays,
    seed: int,
    *,
    rounds: int,
    rate: float,
    rule: Literal["adam", "adagrad"] = "adam",
    plateau: Plateau | None = PLATEAU,
    fixed: Arrays | None = None,
) -> Procedure[Minima]:
    """Minimise a stochastic bound; the random key of a round is derived from the seed and the round number.

    The result is the average of θ over the last rounds, which is less noisy than the last θ. `fixed` may hold
    further fixed parameters for a batch of problems run in lockstep; they share the start and the keys, and
    stop when their mean bound stops improving.
    """
    optimiser, update = _optimiser(rule, rate)
    rest = fixed or {}
    batch = len(jax.tree.leaves(rest)[0]) if rest else 1
    free = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], batch, axis=0), start)
    _, unravel = flatten(free)
    state = optimiser.init(free)
    history: list[float] = []
    path: list[np.ndarray] = []
    values: list[np.ndarray] = []
    while len(history) < rounds and not (plateau is not None and plateau.reached(history)):
        key = jax.random.key_data(jax.random.fold_in(jax.random.key(seed), len(history)))
        keys = np.repeat(np.asarray(key)[None], batch, axis=0)
        step = evaluate(name, objective, free, {"key": keys, **rest})
        now, gradient, _ = yield from noted(step, history[-1] if history else float("inf"))
        _require_finite(name, len(history) + 1, now)
        moves, state = update(gradient, state)
        path.append(ravel(free))
        free = jax.tree.map(lambda leaf, move: np.asarray(leaf + move), free, moves)
        values.append(now)
        history.append(float(now.mean()))
    count = min(50 if plateau is None else plateau.window, max(1, len(history) // 4))
    mean = np.mean(path[-count:], axis=0)
    reached = np.stack(values[-count:], axis=1).mean(axis=1)
    return Minima(unravel(mean), reached, None, len(history), tuple(history))


@cache
def _optimiser(rule: str, rate: float) -> tuple[optax.GradientTransformation, optax.TransformUpdateFn]:
    """The optimiser and its compiled update, cached so that later fits need no recompilation."""
    import optax  # takes a fifth of a second, and only the paper's own inference needs it

    optimiser = optax.adam(rate) if rule == "adam" else optax.adagrad(rate)
    return optimiser, jax.jit(optimiser.update)


def _require_finite(name: str, number: int, values: np.ndarray) -> None:
    if not np.all(np.isfinite(values)):
        raise FitError(
            f"stage '{name}' must keep a finite bound", found=f"not finite in round {number}",
            remedy="lower `learning_rate`",
        )  # fmt: skip
