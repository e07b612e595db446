"""Bounds of the hyperparameters. A site refuses questions outside of them; honest fits stay within.

A question outside is of no use to a fit, but could single people out, for example by a length-scale so short
that each person has a feature of their own. The coordinator evaluates the objective within the bounds only
(`optimise.lbfgs`) and clips the draws.
"""

from __future__ import annotations

import jax
import numpy as np

from unpooled.protocol.records import Arrays
from unpooled.protocol.stage import ANY, FOLD, Bounds


def _between(lowest: float | list[float], highest: float | list[float]) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(lowest), np.asarray(highest)


ARMS = _between([-8.0, -10.0, -8.0], [4.0, 10.0, 4.0])
"""Covariances of the arms: log scale, cross term, log scale."""
SCALE = _between(-8.0, 4.0)
"""Log scale of a single slope."""
NOISE = _between(-6.0, 2.0)
"""Log noise sd."""
LINE_LENGTH = _between(-0.7, 4.0)
"""Log length-scale of a function of one index, in sds of the index."""
SPACE_LENGTH = _between(-1.0, 4.0)
"""Log length-scale of a function of all covariates, divided by the root of their number."""
DIRECTION = _between(-10.0, 10.0)
"""Entries of a direction, whose length is kept near one."""
CLOSENESS = _between(-5.0, 5.0)
"""Log length-scale between the sites' covariate moments."""

FIXED: Bounds = {
    "fold": FOLD,
    "rows": (0.0, 1e9),
    "direction": DIRECTION,
    "noise": NOISE,
    "propensity": DIRECTION,
}
"""Bounds of the values that accompany the hyperparameters: held-out fold, and centres of priors."""
WEIGHT = (-1e6, 1e6)
WEIGHTS: Bounds = {"beta": WEIGHT, "site_shift": WEIGHT, "key": ANY}
"""Bounds of draws of the weights and of the site's shift. They are wide, because draws are as large as the
prior scales allow; the stages see to it that no combination of features singles people out."""

MARGIN = 2e-3
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
