"""Regressions that sites share nothing of, as the coordinator solves them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.maths.linear_algebra import unpack
from unpooled.methods.aipw.normal_equations import System
from unpooled.protocol.messages import Tree


class Apart(NamedTuple):
    """See `aipw.normal_equations.Sharing`; solutions are [batch, site, regression, feature]."""

    sites: int
    width: int

    def shape(self, batch: int, regressions: int) -> tuple[int, ...]:
        return batch, self.sites, regressions, self.width

    def system(self, reply: Tree) -> System:
        sums = dict(reply["each"])
        return System(np.asarray(unpack(sums.pop("gram"))), np.asarray(sums.pop("score")), sums)

    def own(self, solution: np.ndarray) -> np.ndarray:
        return solution
