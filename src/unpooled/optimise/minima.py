"""What a descent brings back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unpooled.protocol.messages import Tree


@dataclass(frozen=True)
class Minima:
    """The best point of each problem in a batch, its value, and the statistics there."""

    free: Tree
    values: np.ndarray
    statistics: Tree
    evaluations: int
    history: tuple[float, ...]
    """The first problem's best value so far, by evaluation."""
    slopes: tuple[float, ...] = ()
    """Length of its gradient there, in units of the descent; of a noisy bound none is told."""
