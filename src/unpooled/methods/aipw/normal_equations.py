"""How regressions go together between sites, as the coordinator solves them.

Batches of regressions are [batch, regression, …]: one of the treatment, two of the outcome (by arm).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from unpooled.maths.linear_algebra import unpack
from unpooled.protocol.messages import Tree


class System(NamedTuple):
    """Normal equations, one for every entry of the leading axes, and what else was summed for them."""

    gram: np.ndarray
    score: np.ndarray
    rest: dict[str, np.ndarray]


class Sharing(Protocol):
    """From replies to equations, and from their solutions to every site's own coefficients."""

    @property
    def sites(self) -> int: ...

    def shape(self, batch: int, regressions: int) -> tuple[int, ...]:
        """Of the solutions."""
        ...

    def system(self, reply: Tree) -> System: ...

    def own(self, solution: np.ndarray) -> np.ndarray:
        """[batch, site, regression, feature]."""
        ...


class Shared(NamedTuple):
    """All sites have the same coefficients, but for an intercept of their own where `offsets`."""

    sites: int
    width: int
    offsets: bool

    def shape(self, batch: int, regressions: int) -> tuple[int, ...]:
        return batch, regressions, self.width + self.offsets * self.sites

    def system(self, reply: Tree) -> System:
        sums, own = dict(reply["total"]), reply["each"]
        gram, score = np.asarray(unpack(sums.pop("gram"))), np.asarray(sums.pop("score"))
        if self.offsets:
            rows, start = (np.moveaxis(own[name], 1, 2) for name in ("gram_row", "score_start"))
            corner = rows[..., :1] * np.eye(self.sites)
            above = np.concatenate([gram, np.swapaxes(rows, -1, -2)], axis=-1)
            gram = np.concatenate([above, np.concatenate([rows, corner], axis=-1)], axis=-2)
            score = np.concatenate([score, start], axis=-1)
        return System(gram, score, sums)

    def own(self, solution: np.ndarray) -> np.ndarray:
        found = np.repeat(solution[:, None, :, : self.width], self.sites, axis=1)
        if self.offsets:
            found[..., 0] += np.moveaxis(solution[..., self.width :], 2, 1)
        return found


def penalty(size: int, ridge: float) -> np.ndarray:
    """What is added to a Gram matrix's diagonal: nothing for the intercept."""
    return np.where(np.arange(size) == 0, 0.0, ridge)
