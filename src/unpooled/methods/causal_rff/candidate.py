"""What a candidate model must offer. A new kind of latent confounder joins by a module and a line."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from unpooled.optimise.procedure import Procedure
from unpooled.protocol.messages import Tree


class Found(NamedTuple):
    """Draws of the parameters: `fixed` [K, …] that all sites know, `each` [K, site, …]; the same from the
    fits without each fold, [fold, k, …] (None where nobody was held out); how it went."""

    draws: Tree
    without: Tree
    diagnostics: dict[str, Any]


def noise_sd(draws: Tree) -> float:
    """The noise's sd over draws and arms, in standard units."""
    return float(np.sqrt(np.mean(draws["fixed"]["noise"])))


class Candidate(Protocol):
    """Fitted side by side with the others: the rounds are those of the longest."""

    def learn(self, folds: int) -> Procedure[Any]:
        """Find the mode; `folds` is 0 where nobody is held out."""
        ...

    def sample(self, learned: Any, folds: int) -> Procedure[Found]:
        """Draw from the posterior about it, and fit without each fold."""
        ...
