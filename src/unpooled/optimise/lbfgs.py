"""SciPy's L-BFGS-B for deterministic objectives: a batch of problems, evaluated together in lockstep."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass

import jax
import numpy as np
from scipy.optimize import minimize

from unpooled.errors import FitError
from unpooled.optimise.objective import Differentiable, Minima, evaluate, flatten, ravel
from unpooled.optimise.procedure import Procedure, noted
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays


@dataclass(frozen=True)
class Stopping:
    """Stopping criteria."""

    evaluations: int = 60
    """Maximum number of evaluations of the objective."""
    tolerance: float = 1e-2
    """Stop when a step lowers the objective by less than this."""
    coarser: float = 1.0
    """Factor on the tolerance for all problems after the first."""


_NATS = 1e6
"""Divisor of the objective. SciPy's ftol is relative to max(|J|, 1); after division it is absolute."""
_WALL = 100.0
"""Penalty, in nats above the best value, returned where Cholesky failed: large enough for the line search to
backtrack, small enough for the interpolated step not to vanish."""


Box = tuple[np.ndarray, np.ndarray]
"""The lowest and the highest value of every parameter."""
_STIFFNESS = 100.0
"""Curvature of the penalty outside the box, in nats per squared unit."""


class _AskTell:
    """SciPy's minimiser in its own thread, so that several can wait for the same exchange."""

    def __init__(self, start: np.ndarray, evaluations: int, tolerance: float) -> None:
        self._points: queue.Queue[np.ndarray | Exception | None] = queue.Queue()
        self._values: queue.Queue[tuple[float, np.ndarray] | None] = queue.Queue()
        options = {
            "maxfun": evaluations,
            "maxiter": evaluations,
            "ftol": tolerance / _NATS,
            "gtol": 1e-3 / _NATS,
        }
        self._thread = threading.Thread(target=self._run, args=(start, options), daemon=True)
        self._thread.start()

    def _run(self, start: np.ndarray, options: dict[str, object]) -> None:
        try:
            minimize(self._evaluate, start, jac=True, method="L-BFGS-B", options=options)
        except InterruptedError:
            return
        except Exception as error:  # re-raised in the coordinator's thread, which would otherwise block
            self._points.put(error)
            return
        self._points.put(None)

    def _evaluate(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        self._points.put(point.copy())
        answer = self._values.get()
        if answer is None:
            raise InterruptedError
        return answer[0] / _NATS, answer[1] / _NATS

    def point(self) -> np.ndarray | None:
        asked = self._points.get()
        if isinstance(asked, Exception):
            raise asked
        return asked

    def tell(self, value: float, gradient: np.ndarray) -> None:
        self._values.put((value, gradient))

    def stop(self) -> None:
        self._values.put(None)


def lbfgs(
    name: str, objective: Differentiable, starts: Arrays, axes: np.ndarray, fixed: Arrays, stopping: Stopping,
    box: Box | None = None,
) -> Procedure[Minima]:  # fmt: skip
    """Minimise a batch of problems in lockstep; one evaluation of all problems is one pair of exchanges.

    `axes` [problem, parameter, axis] preconditions each problem: the columns are steps as long as the
    expected distance to the optimum. Good conditioning keeps the number of rounds small.

    Outside `box` the objective is that of the nearest point within, plus a quadratic penalty: no question
    asks about a point outside, and no minimum lies there.
    """
    flat, unravel = flatten(starts)
    tolerances = stopping.tolerance * np.where(np.arange(len(flat)) == 0, 1.0, stopping.coarser)
    solvers = [_AskTell(np.zeros(flat.shape[1]), stopping.evaluations, each) for each in tolerances]
    low, high = (-np.inf, np.inf) if box is None else box
    points, outside = flat.copy(), np.zeros_like(flat)
    best = np.full(len(flat), np.inf)
    kept: dict[int, tuple[np.ndarray, Statistics]] = {}
    active = set(range(len(flat)))
    history: list[float] = []
    lengths: list[float] = []
    evaluations = 0
    try:
        while True:
            for index in sorted(active):
                point = solvers[index].point()
                if point is None:
                    active.discard(index)
                else:
                    proposed = flat[index] + axes[index] @ point
                    points[index] = np.clip(proposed, low, high)
                    outside[index] = proposed - points[index]
            # SciPy checks its limit only between line searches; counting here makes the limit exact.
            if not active or evaluations == stopping.evaluations:
                break
            evaluations += 1
            asked = sorted(active)
            these = jax.tree.map(lambda leaf, rows=asked: np.asarray(leaf)[rows], fixed)
            step = evaluate(name, objective, unravel(points[asked]), these)
            values, gradient, statistics = yield from noted(step, float(best[0]))
            slopes = ravel(gradient)
            for row, index in enumerate(asked):
                value, slope = float(values[row]), slopes[row]
                finite = bool(np.isfinite(value) and np.all(np.isfinite(slope)))
                if finite and value < best[index]:
                    best[index] = value
                    kept[index] = (
                        points[index].copy(),
                        jax.tree.map(lambda leaf, i=row: leaf[i], statistics),
                    )
                if finite:
                    beyond = outside[index]
                    towards = np.where(beyond == 0.0, slope, _STIFFNESS * beyond)
                    penalty = 0.5 * _STIFFNESS * float(beyond @ beyond)
                    solvers[index].tell(value + penalty, towards @ axes[index])
                else:
                    solvers[index].tell(min(best[index] + _WALL, 1e12), np.zeros_like(slope))
            history.append(float(best[0]))
            lengths.append(float(np.linalg.norm(slopes[0] @ axes[0])) if asked[0] == 0 else lengths[-1])
    finally:
        for solver in solvers:
            solver.stop()
    if not np.all(np.isfinite(best)):
        raise FitError(
            f"stage '{name}' must have a finite objective",
            found="no finite value at any point tried",
            remedy="check for columns with extreme values, or use fewer covariates than people",
        )
    kept_points, kept_statistics = zip(*[kept[index] for index in range(len(flat))], strict=True)
    free = unravel(np.stack(kept_points))
    statistics = jax.tree.map(lambda *leaves: np.stack(leaves), *kept_statistics)
    return Minima(free, best, statistics, evaluations, tuple(history), tuple(lengths))
