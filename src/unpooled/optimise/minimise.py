"""Down a deterministic objective: first in units guessed beforehand, then in units of its curvature."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np

from unpooled.optimise.lbfgs import Stopping, lbfgs
from unpooled.optimise.objective import Minima, curvature, ravel
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.records import Arrays
from unpooled.protocol.stage import Objective

STRETCH = 15
"""Evaluations before the curvature is looked at (again): by then the old units hold the descent up."""


def minimise(
    name: str, objective: Objective, starts: Arrays, scales: Arrays, fixed: Arrays, stopping: Stopping
) -> Procedure[Minima]:
    """L-BFGS on a batch of like problems (a whole and its folds); the first problem's curvature serves all.

    `scales` is how far each parameter is expected to be from its optimum. Where more than one stretch of
    evaluations is allowed, each further one begins with a Hessian, which costs one of them and saves dozens.
    """
    axes = np.stack([np.diag(unit) for unit in ravel(scales)])
    free, spent, history, slopes = starts, 0, [], []
    trusted = stopping.evaluations <= STRETCH
    while True:
        stretch = min(STRETCH, stopping.evaluations - spent)
        found = yield from lbfgs(name, objective, free, axes, fixed, replace(stopping, evaluations=stretch))
        free, spent = found.free, spent + found.evaluations
        history += found.history
        slopes += found.slopes
        converged = trusted and found.evaluations < stretch
        if converged or stopping.evaluations - spent < 2:
            return replace(found, evaluations=spent, history=tuple(history), slopes=tuple(slopes))
        whole, its_fixed = (jax.tree.map(lambda leaf: np.asarray(leaf)[0], tree) for tree in (free, fixed))
        hessian = yield from curvature(name, objective, whole, its_fixed)
        axes, spent, trusted = np.stack([curved_axes(hessian)] * len(axes)), spent + 1, True


def curved_axes(hessian: np.ndarray) -> np.ndarray:
    """|H|^{−½}, one axis per column: in these units a bowl is round, and a saddle is as steep as a bowl.

    Eigenvalues under one, the least that priors of unit width leave, are taken as one.
    """
    values, vectors = np.linalg.eigh(hessian)
    return vectors / np.sqrt(np.maximum(np.abs(values), 1.0))
