"""Random streams by name: one seed, and a number for each purpose and site, so no two streams coincide."""

from __future__ import annotations

import numpy as np

STREAMS = {
    "inducing inputs": 1,
    "folds": 2,
    "regression draws": 3,
    "coefficient draws": 4,
    "site effects": 5,
    "individual effects": 6,
    "diagnostic folds": 7,
    "frequencies": 8,
}
"""The number of each stream; a new one takes the next."""


def stream(seed: int, name: str, *more: int) -> np.random.Generator:
    """The generator of one purpose, such as the folds of one site.

    >>> first, again, other = (stream(7, "folds", site).random() for site in (0, 0, 1))
    >>> first == again, first == other
    (True, False)
    """
    return np.random.default_rng([seed, STREAMS[name], *more])
