"""Minimise a deterministic objective with L-BFGS, preconditioned first by prior scales, then by a Hessian."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np

from unpooled.optimise.lbfgs import Box, Stopping, lbfgs
from unpooled.optimise.objective import Minima, curvature, ravel
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.records import Arrays
from unpooled.protocol.stage import Objective

STRETCH = 15
"""Re-precondition with the Hessian every 15 evaluations."""


def minimise(
    name: str, objective: Objective, starts: Arrays, scales: Arrays, fixed: Arrays, stopping: Stopping,
    box: Box | None = None,
) -> Procedure[Minima]:  # fmt: skip
    """Minimise a batch of similar problems (the full data and its folds) with L-BFGS.

    `scales` is the expected distance of each parameter from its optimum; it preconditions the first
    evaluations. After every `STRETCH` evaluations all problems are preconditioned with the Hessian of the
    first problem, which counts as one evaluation. Only points within `box` are evaluated.
    """
    axes = np.stack([np.diag(unit) for unit in ravel(scales)])
    free, spent, history, slopes = starts, 0, [], []
    trusted = stopping.evaluations <= STRETCH
    while True:
        stretch = min(STRETCH, stopping.evaluations - spent)
        limit = replace(stopping, evaluations=stretch)
        found = yield from lbfgs(name, objective, free, axes, fixed, limit, box)
        free, spent = found.free, spent + found.evaluations
        history += found.history
        slopes += found.slopes
        converged = trusted and found.evaluations < stretch
        if converged or stopping.evaluations - spent < 2:
            return replace(found, evaluations=spent, history=tuple(history), slopes=tuple(slopes))
        whole, its_fixed = (jax.tree.map(lambda leaf: np.asarray(leaf)[0], tree) for tree in (free, fixed))
        hessian = yield from curvature(name, objective, whole, its_fixed, two_sided=False)
        axes, spent, trusted = np.stack([curved_axes(hessian)] * len(axes)), spent + 1, True


def curved_axes(hessian: np.ndarray) -> np.ndarray:
    """|H|^{−½}, one axis per column: in these coordinates the Hessian has eigenvalues ±1.

    Eigenvalues of absolute value below one, the curvature of a prior of unit width, are replaced by one.
    """
    values, vectors = np.linalg.eigh(hessian)
    return vectors / np.sqrt(np.maximum(np.abs(values), 1.0))
