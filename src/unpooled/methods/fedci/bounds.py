"""Bounds of the hyperparameters. A site may refuse questions outside of them; honest fits stay within.

A question outside is of no use to a fit, but could single people out, for example by a length-scale so short
that each person has a feature of their own. The coordinator evaluates the objective within the bounds only
(`optimise.lbfgs`) and clips the draws.
"""

from __future__ import annotations

import jax
import numpy as np

from unpooled.protocol.records import Arrays

Bounds = dict[str, tuple[np.ndarray, np.ndarray]]
"""From the name of a parameter to its lowest and highest value, which broadcast to its shape."""


def _between(lowest: float | list[float], highest: float | list[float]) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(lowest), np.asarray(highest)


ARMS = _between([-8.0, -10.0, -8.0], [4.0, 10.0, 4.0])
"""Covariances of the arms: log scale, cross term, log scale."""
NOISE = _between(-6.0, 2.0)
"""Log noise sd."""
LINE_LENGTH = _between(-1.5, 4.0)
"""Log length-scale of a function of one index, in sds of the index."""
SPACE_LENGTH = _between(-2.5, 4.0)
"""Log length-scale of a function of all covariates, divided by the root of their number."""
DIRECTION = _between(-10.0, 10.0)
"""Entries of a direction, whose length is kept near one."""
CLOSENESS = _between(-5.0, 5.0)
"""Log length-scale between the sites' covariate moments."""

MARGIN = 1e-3
"""How far within the bounds the coordinator stays, so that finite differences do not leave them."""


def limits_of(bounds: Bounds, free: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and highest values that the coordinator uses, flat and in the order of `free`."""
    shaped = {
        name: [np.broadcast_to(limit, np.shape(value)) for limit in bounds[name]]
        for name, value in free.items()
    }
    low, high = (
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves({n: s[i] for n, s in shaped.items()})])
        for i in (0, 1)
    )
    return low + MARGIN, high - MARGIN


def outside(free: Arrays, bounds: Bounds) -> list[str]:
    """Names of the parameters with a value outside the bounds, or without bounds; of one θ or of a batch.

    >>> outside({"noise": np.array([0.0, 3.0]), "closeness": np.zeros(())}, {"noise": NOISE})
    ['closeness', 'noise']
    """
    return sorted(
        name for name, value in free.items() if name not in bounds or not _within(value, bounds[name])
    )


def _within(value: np.ndarray, bounds: tuple[np.ndarray, np.ndarray]) -> bool:
    array = np.asarray(value, dtype=float)
    return bool(np.all((bounds[0] <= array) & (array <= bounds[1])))
