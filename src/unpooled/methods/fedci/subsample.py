"""Large sites: the descent starts from some of their people and ends with all of them.

What takes many passes over the rows (finding the hyperparameters' region, its curvature, the weights of
the structures) needs no more than some thousand people. Their curvature, scaled up to everybody, then
leads to everybody's minimum in a few passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from unpooled.methods.fedci.stages import Evidence
from unpooled.optimise.lbfgs import Stopping, lbfgs
from unpooled.optimise.minimise import curved_axes
from unpooled.optimise.objective import Minima
from unpooled.optimise.procedure import Procedure
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows, padded_size
from unpooled.protocol.stage import Stage

KEPT = 2048
"""People of a large site with whom the descent starts."""
REFINEMENT = 10
"""Most evaluations on everybody."""


def share(counts: Sequence[int]) -> float:
    """The share of all people that is kept: 1 unless a site is more than twice as large as what is kept."""
    if max(counts) <= 2 * KEPT:
        return 1.0
    return sum(len(_kept(padded_size(n), n)) for n in counts) / sum(counts)


def _kept(size: int, people: int) -> np.ndarray:
    """Evenly over the table, so that its order does not matter much; padding falls away."""
    places = np.arange(size) if size <= KEPT else np.arange(KEPT) * size // KEPT
    return places[places < people]


def subsampled(name: str) -> str:
    """The name of the stage with the people kept."""
    return f"{name}/subsampled"


class Subsampled(Stage):
    """The statistics of some of each site's people; what the coordinator makes of them is the evidence's."""

    evidence: Evidence
    reveals: ClassVar[str] = "the statistics of the stage it is named after, of about 2,000 of the people"

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        size = rows.present.shape[0]
        kept = jnp.asarray(_kept(size, size))
        few = jax.tree.map(lambda leaf: leaf[kept] if leaf.ndim else leaf, rows)
        return self.evidence.statistics(parameters, few)


def refine(
    name: str, evidence: Evidence, start: Arrays, hessian: np.ndarray, fixed: Arrays, tolerance: float
) -> Procedure[Minima]:
    """From the minimum of the few to that of all, in units of the curvature that all should have."""
    one, problem = (jax.tree.map(lambda leaf: np.asarray(leaf)[None], tree) for tree in (start, fixed))
    stopping = Stopping(REFINEMENT, tolerance)
    return (yield from lbfgs(name, evidence, one, curved_axes(hessian)[None], problem, stopping))
