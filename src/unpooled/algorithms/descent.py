"""Down a deterministic objective: first in units guessed beforehand, then in units of its curvature."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np

from unpooled.algorithms.exchange import Procedure
from unpooled.algorithms.lbfgs import Stopping, lbfgs
from unpooled.algorithms.minima import Minima
from unpooled.algorithms.objective import curvature, ravel
from unpooled.protocol.messages import Tree
from unpooled.protocol.stage import Objective

ROUGH = 20
"""Evaluations in guessed units: enough to come near, after which they are what holds the descent up."""


def descend(
    name: str, objective: Objective, starts: Tree, scales: Tree, fixed: Tree, stopping: Stopping
) -> Procedure[Minima]:
    """L-BFGS on a batch of like problems (a whole and its folds); the first problem's curvature serves all.

    Where more evaluations are allowed than the rough ones, the Hessian costs one of them and saves dozens.
    `scales` is how far each parameter is expected to be from its optimum.
    """
    guessed = np.stack([np.diag(unit) for unit in ravel(scales)])
    rough = replace(stopping, evaluations=min(stopping.evaluations, ROUGH))
    near = yield from lbfgs(name, objective, starts, guessed, fixed, rough)
    if stopping.evaluations < ROUGH + 2:
        return near
    whole, its_fixed = (jax.tree.map(lambda leaf: np.asarray(leaf)[0], tree) for tree in (near.free, fixed))
    axes = curved_axes((yield from curvature(name, objective, whole, its_fixed)))
    left = replace(stopping, evaluations=stopping.evaluations - near.evaluations - 1)
    found = yield from lbfgs(name, objective, near.free, np.stack([axes] * len(guessed)), fixed, left)
    return replace(
        found,
        evaluations=near.evaluations + 1 + found.evaluations,
        history=(*near.history, *found.history),
    )


def curved_axes(hessian: np.ndarray) -> np.ndarray:
    """|H|^{−½}, one axis per column: in these units a bowl is round, and a saddle is as steep as a bowl.

    Eigenvalues under one, the least that priors of unit width leave, are taken as one.
    """
    values, vectors = np.linalg.eigh(hessian)
    return vectors / np.sqrt(np.maximum(np.abs(values), 1.0))
