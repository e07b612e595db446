"""What a candidate model must offer. A new kind of latent confounder joins by a module and a line."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from unpooled.optimise.procedure import Procedure
from unpooled.protocol.records import Draws


class CandidateFit(NamedTuple):
    """Draws of the parameters: shared by all sites and by site; the same from the
    fits without each fold, [fold, k, …] (None where nobody was held out); how it went."""

    draws: Draws
    without: Draws | None
    diagnostics: dict[str, Any]


def noise_sd(draws: Draws) -> float:
    """The noise's sd over draws and arms, in standard units."""
    return float(np.sqrt(np.mean(draws.shared["noise"])))


class Candidate(Protocol):
    """Fitted side by side with the others: the rounds are those of the longest."""

    def learn(self, folds: int) -> Procedure[Any]:
        """Find the mode; `folds` is 0 where nobody is held out."""
        ...

    def sample(self, learned: Any, folds: int) -> Procedure[CandidateFit]:
        """Draw from the posterior about it, and fit without each fold."""
        ...
