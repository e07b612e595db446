"""Refinement of the subsample's minimum on all people, in few passes over their rows.

Two things save passes. The coordinator minimises over the hyperparameters that the sites do not use by
itself, at every evaluation. And the minimisation is preconditioned by the Hessian of the subsample, scaled to
all people and computed anew after every stretch, because it changes on the way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import jax
import numpy as np
from jaxtyping import Array
from scipy.optimize import minimize

from unpooled.methods.fedci.bounds import limits_of
from unpooled.methods.fedci.stages import Evidence
from unpooled.optimise.lbfgs import Box, Stopping, lbfgs
from unpooled.optimise.minimise import curved_axes
from unpooled.optimise.objective import Minima, flatten, ravel
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays

REFINEMENT, STRETCH = 12, 6
"""Maximum number of evaluations on all people, and of those under one Hessian."""
ACCURACY = 1e-4
"""The coordinator's own minimisation stops when a step lowers the objective by less than this many nats."""


def refine(
    name: str, evidence: Evidence, start: Arrays, hessian: np.ndarray, fixed: Arrays, tolerance: float
) -> Procedure[Minima]:
    """One stretch of the minimisation on all people, preconditioned by `hessian`."""
    one, problem = (jax.tree.map(lambda leaf: np.asarray(leaf)[None], tree) for tree in (start, fixed))
    stopping = Stopping(STRETCH, tolerance)
    box = limits_of(evidence.structure.bounds(), start)
    profiled = Profiled(evidence, one, box)
    axes = profiled_axes(hessian, profiled.own)
    found = yield from lbfgs(name, profiled, one, axes[None], problem, stopping, box)
    assert found.statistics is not None
    return replace(found, free=profiled.minimum(found.free, problem, found.statistics))


class Profiled:
    """An objective as a function of the hyperparameters that sites use, minimised over all others.

    By the envelope theorem its slopes are those of the objective at that minimum.
    """

    one_exchange: ClassVar[bool] = False

    def __init__(self, evidence: Evidence, start: Arrays, box: Box) -> None:
        self._evidence = evidence
        self._latest, self._unravel = flatten(start)
        used = {name: np.full(np.shape(leaf), name in evidence.at_sites) for name, leaf in start.items()}
        self.own = ~ravel(used)[0].astype(bool)
        """Which parameters are the coordinator's own."""
        self._limits = list(zip(*(side[self.own] for side in box), strict=True))

    def minimum(self, free: Arrays, fixed: Arrays, statistics: Statistics) -> Arrays:
        """The hyperparameters with the coordinator's own at their minimum, given the statistics."""
        point = ravel(free)
        point[:, self.own] = self._latest[:, self.own]

        def value(own: np.ndarray) -> tuple[float, np.ndarray]:
            point[0, self.own] = own
            values, slopes, _ = self._evidence.value_and_slopes(self._unravel(point), fixed, statistics)
            return float(values[0]), ravel(slopes)[0, self.own]

        start, _ = value(point[0, self.own])
        options = {"ftol": ACCURACY / max(abs(start), 1.0)}
        found = minimize(
            value, point[0, self.own], jac=True, method="L-BFGS-B", bounds=self._limits, options=options
        )
        point[0, self.own] = found.x
        self._latest = point.copy()
        return self._unravel(point.copy())

    def value_and_slopes(
        self, free: Arrays, fixed: Arrays, statistics: Statistics
    ) -> tuple[Array | np.ndarray, Arrays, Statistics]:
        at = self.minimum(free, fixed, statistics)
        values, slopes, cotangent = self._evidence.value_and_slopes(at, fixed, statistics)
        flat = ravel(slopes)
        flat[:, self.own] = 0.0
        return values, self._unravel(flat), cotangent


def profiled_axes(hessian: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Axes along which the profiled objective has unit curvature; none of them moves `own` parameters."""
    used = ~own
    across = hessian[np.ix_(used, own)]
    inner = hessian[np.ix_(own, own)]
    axes = np.zeros_like(hessian)
    axes[np.ix_(used, used)] = curved_axes(
        hessian[np.ix_(used, used)] - across @ np.linalg.pinv(inner, hermitian=True) @ across.T
    )
    return axes
