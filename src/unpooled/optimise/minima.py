"""What a descent brings back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays


@dataclass(frozen=True)
class Minima:
    """The best point of each problem in a batch, its value, and the statistics there."""

    free: Arrays
    values: np.ndarray
    statistics: Statistics | None
    evaluations: int
    history: tuple[float, ...]
    """The first problem's best value so far, by evaluation."""
    slopes: tuple[float, ...] = ()
    """Length of its gradient there, in units of the descent; of a noisy bound none is told."""
