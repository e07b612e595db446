"""Evaluate an objective J(θ) = F(θ, Σ_s S_s(θ)) over the sites: its value, gradient and Hessian.

`evaluate` takes one exchange for scalar statistics (the paper's Algorithm 1) and two otherwise. The module
also converts batches of parameter trees to matrices, and defines `Minima`, the result of all optimisers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Array

from unpooled.optimise.procedure import Procedure, ask, vjp
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters


class Differentiable(Protocol):
    """What `evaluate` needs of an objective; see `Objective`."""

    one_exchange: ClassVar[bool]

    def value_and_slopes(
        self, free: Arrays, fixed: Arrays, statistics: Statistics
    ) -> tuple[Array | np.ndarray, Arrays, Statistics]:
        """F and its gradients with respect to θ and S, for a batch of θ and their statistics."""
        ...


class Evaluation(NamedTuple):
    """J, ∂J/∂θ and the statistics for a batch of θ."""

    values: np.ndarray
    gradient: Arrays
    statistics: Statistics


def evaluate(name: str, objective: Differentiable, free: Arrays, fixed: Arrays) -> Procedure[Evaluation]:
    """J and its gradient for a batch of θ: in one exchange if `objective.one_exchange`, otherwise in two."""
    parameters = Parameters(free, fixed)
    if objective.one_exchange:
        batch = len(jax.tree.leaves(free)[0])
        reply = yield from vjp(name, parameters, Statistics(np.ones(batch)))
        statistics = Statistics(reply.value)
        values, direct, _ = objective.value_and_slopes(free, fixed, statistics)
    else:
        statistics = yield from ask(name, parameters)
        values, direct, cotangent = objective.value_and_slopes(free, fixed, statistics)
        reply = yield from vjp(name, parameters, cotangent)
    gradient = jax.tree.map(np.add, direct, reply.gradient)
    return Evaluation(np.asarray(values), gradient, statistics)


DIFFERENCE = 1e-3
"""Step of the finite differences: gradients have seven digits where sites send single precision."""


def curvature(
    name: str, objective: Differentiable, free: Arrays, fixed: Arrays, *, two_sided: bool
) -> Procedure[np.ndarray]:
    """The Hessian of J at one θ, by finite differences of exact gradients, all in one batch.

    One-sided differences take half as many gradients. They suffice for a preconditioner, but their error of
    order `DIFFERENCE` is too large for a posterior covariance.
    """
    flat, unravel = flatten(jax.tree.map(lambda leaf: np.asarray(leaf)[None], free))
    size = flat.shape[1]
    before = flat - DIFFERENCE * np.eye(size) if two_sided else flat
    points = np.concatenate([before, flat + DIFFERENCE * np.eye(size)])
    many = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], len(points), axis=0), fixed)
    _, gradient, _ = yield from evaluate(name, objective, unravel(points), many)
    slopes = ravel(gradient)
    hessian = (slopes[-size:] - slopes[:-size]) / (2.0 * DIFFERENCE if two_sided else DIFFERENCE)
    return 0.5 * (hessian + hessian.T)


def flatten(batch: Arrays) -> tuple[np.ndarray, Callable[[np.ndarray], Arrays]]:
    """A batch of trees as the rows of a matrix, and the inverse function."""
    leaves, treedef = jax.tree.flatten(batch)
    shapes = [np.shape(leaf)[1:] for leaf in leaves]
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]

    def unravel(points: np.ndarray) -> Arrays:
        parts = np.split(points, ends, axis=1)
        return treedef.unflatten(
            [part.reshape(len(part), *shape) for part, shape in zip(parts, shapes, strict=True)]
        )

    return ravel(batch), unravel


def ravel(batch: Arrays) -> np.ndarray:
    """A batch of trees as the rows of a matrix."""
    leaves = [np.asarray(leaf, dtype=float) for leaf in jax.tree.leaves(batch)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


@dataclass(frozen=True)
class Minima:
    """The best point found for each problem of a batch, with its value and statistics."""

    free: Arrays
    values: np.ndarray
    statistics: Statistics | None
    evaluations: int
    history: tuple[float, ...]
    """Best value of the first problem so far, by evaluation."""
    slopes: tuple[float, ...] = ()
    """Norm of the first problem's preconditioned gradient, by evaluation; empty for stochastic bounds."""
