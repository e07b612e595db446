"""Subsampling for large or many sites: minimise on a subsample first, then refine on all people.

The steps that take many passes over the rows (minimisation, Hessians, weights of the structures) need no more
than a few thousand people, at a dozen or so sites. The minimisation on all people (`refinement`) then takes
few passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from unpooled.maths.streams import stream_key
from unpooled.methods.fedci.stages import Evidence
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds, Stage

KEPT = 2048
"""Size of the subsample of a large site."""
LARGE = 4100
"""A site is large if it has more rows than this, about twice the size of the subsample."""
ENOUGH_SITES, ENOUGH_PEOPLE = 16, 8192
"""Where there are many sites, the subsample has at least this many of them, with about this many people."""


def is_large(rows: int) -> bool:
    """Whether a site has so many rows that the fit starts on a subsample."""
    return rows > LARGE


def interval(sites: int, people: int) -> int:
    """Every how many-th site is in the subsample: 1, all of them, unless there are many.

    >>> [interval(sites, 1000 * sites) for sites in (3, 31, 100, 1000)]
    [1, 1, 6, 62]
    """
    return max(1, min(sites // ENOUGH_SITES, people // ENOUGH_PEOPLE))


def share(counts: Sequence[int]) -> float:
    """The share of all people in the subsample; 1 unless a site is large or there are many sites."""
    every = interval(len(counts), sum(counts))
    if every == 1 and not is_large(max(counts)):
        return 1.0
    return sum(n if n <= 2 * KEPT else KEPT for n in counts[::every]) / sum(counts)


def drawn(rows: Rows) -> Int[Array, " k"]:
    """Indices of a random subsample with both arms in proportion, the same at every question.

    The people, controls first, are divided into `KEPT` stretches of nearly equal length, and one is drawn
    from each.
    """
    key = rows.own_key(stream_key(0, "subsample"))
    arms = jnp.stack([1.0 - rows.treatment, rows.treatment]) * rows.people
    controls, people = arms[0].sum(), rows.people.sum()
    ends = jnp.floor(jnp.arange(KEPT + 1) * people / KEPT)
    place = ends[:-1] + jnp.floor(jax.random.uniform(key, (KEPT,)) * jnp.diff(ends))
    # The person at a place is the first one up to whom the arm has more people than that.
    first, second = (
        jnp.searchsorted(jnp.cumsum(arm), place - before, side="right")
        for arm, before in zip(arms, (0.0, controls), strict=True)
    )
    return jnp.where(place < controls, first, second)


def subsampled(name: str) -> str:
    """The name of the subsampled stage."""
    return f"{name}/subsampled"


def first_stage(name: str, share: float) -> str:
    """The stage of the first minimisation: subsampled if the share is below one."""
    return name if share == 1.0 else subsampled(name)


def structure_of(stage: str) -> str:
    """The structure whose stage it is, subsampled or not."""
    return stage.removesuffix("/subsampled")


class Subsampled(Stage):
    """The statistics of another stage from a subsample of the site's people, or zero if the site is not in
    the subsample."""

    evidence: Evidence
    interval: int = eqx.field(static=True)
    reveals: ClassVar[str] = (
        "the statistics of the stage it is named after, of about 2,000 of the people; nothing if other sites "
        "are enough"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        if self.interval == 1:
            return self._own(parameters, rows)
        shapes = jax.eval_shape(self._own, parameters, rows)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        taken = rows.site % self.interval == 0
        return jax.lax.cond(taken, lambda: self._own(parameters, rows), lambda: nothing)

    def _own(self, parameters: Parameters, rows: Rows) -> Statistics:
        # With fewer than twice as many people, everybody's sums minus those of the subsample would be of few.
        if rows.present.shape[0] <= 2 * KEPT:
            return self.evidence.statistics(parameters, rows)
        kept = drawn(rows)
        subsample = jax.tree.map(lambda leaf: leaf[kept] if leaf.ndim else leaf, rows)
        return self.evidence.statistics(parameters, subsample)

    def bounds(self) -> Bounds:
        return self.evidence.bounds()
