"""Penalised likelihoods by Newton steps, as a procedure: each step takes a round.

The log likelihoods of a batch of regressions are known to second order about their points, from sums over
sites. The regression of everybody is the last of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import logit

from unpooled.methods.aipw.penalties import aic_penalty, diagonal, held_out_penalty, solve
from unpooled.optimise.procedure import Procedure

STEPS = 8
"""Maximum number of Newton rounds; four or five are typical."""
ENOUGH = 1e-8
"""Squared Newton decrement below which the last step is taken without evaluating it. That of the point which
it leads to is of the order of its square."""
NEAR = 5.0
"""Squared Newton decrement of everybody's regression below which the penalty is no longer changed."""
CHOOSING = 5
"""Most Newton rounds in which the penalty is chosen, so that some are left to converge with it."""
ROUNDING = 1e-6
"""A value that is lower by a smaller share is not worse: sites with limits send seven digits."""
RAREST = 1e-4
"""Rates from which the steps start are at least this far from 0 and 1."""


class Expansion(NamedTuple):
    """Log likelihoods of a batch of regressions to second order, each about a point of its own."""

    point: np.ndarray
    value: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray

    @property
    def score(self) -> np.ndarray:
        """s of the quadratic sᵀb − ½bᵀGb."""
        return self.slope + np.einsum("...fg,...g->...f", self.curvature, self.point)


class Mode(NamedTuple):
    """Where the Newton steps ended: the points, the penalties [batch, …] and the last expansions."""

    point: np.ndarray
    ridge: np.ndarray
    last: Expansion
    rounds: int
    converged: bool


def mode(
    expand: Callable[[np.ndarray], Procedure[Expansion]],
    here: Expansion,
    width: int,
    ridge: float | None,
    balancing: float | None = None,
) -> Procedure[Mode]:
    """Newton steps from an expansion that took one round; a step that lowers the value is halved.

    While the penalty is chosen, all regressions are evaluated at the point of everybody's regression, where
    their sums can be subtracted. Then each goes on by itself.
    """
    number, choosing = 1, True
    chosen = _penalty(here, width) if ridge is None else np.full(here.point.shape[1:-1], ridge)
    step, gain = _newton_step(here, chosen, width)
    while number < STEPS:
        if choosing and (ridge is not None or np.all(gain[-1] <= NEAR) or number == CHOOSING):
            choosing, last = False, chosen if balancing is None else np.full_like(chosen, balancing)
            chosen = np.stack([*[chosen] * (len(here.point) - 1), last])
            step, gain = _newton_step(here, chosen, width)
        if not choosing and np.all(gain <= ENOUGH):
            break
        move = np.repeat(step[-1:], len(step), axis=0) if choosing else step
        there = yield from expand(here.point + move)
        number += 1
        worse = _worse(there, here, chosen, width)
        worse = np.repeat(worse[-1:], len(worse), axis=0) if choosing else worse
        here = Expansion(
            *(np.where(_like(worse, new), old, new) for old, new in zip(here, there, strict=True))
        )
        chosen = _penalty(here, width) if choosing else chosen
        step, gain = _newton_step(here, chosen, width)
        step, gain = np.where(worse[..., None], 0.5 * move, step), np.where(worse, np.inf, gain)
    near = gain <= ENOUGH
    point = here.point + np.where(near[..., None], step, 0.0)
    return Mode(point, chosen, here, number, bool(np.all(near)))


def about_rates(products: np.ndarray, totals: np.ndarray, *, counts: bool = False) -> Expansion:
    """The expansions about everybody's rate, the same for all people, from products of the features with each
    other and with the 0/1 outcome or count."""
    people, events = products[..., 0, 0], totals[..., 0]
    rate = np.clip(events[-1:] / np.maximum(people[-1:], 1.0), RAREST, np.inf if counts else 1.0 - RAREST)
    start, variance = (np.log(rate), rate) if counts else (logit(rate), rate * (1.0 - rate))
    lost = people * rate if counts else -people * np.log1p(-rate)
    first = np.arange(totals.shape[-1]) == 0
    return Expansion(
        np.repeat(np.where(first, start[..., None], 0.0), len(totals), axis=0),
        events * start - lost,
        totals - rate[..., None] * products[..., 0],
        variance[..., None, None] * products,
    )


def _penalty(here: Expansion, width: int) -> np.ndarray:
    """The penalty by held-out fit or, without folds, by AIC."""
    if len(here.point) > 1:
        return held_out_penalty(here.curvature, here.score, width)
    return aic_penalty(here.curvature[0], here.score[0], width)


def _newton_step(here: Expansion, ridge: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The Newton steps of the penalised log likelihoods, and twice their predicted gains."""
    weight = diagonal(ridge, width, here.point.shape[-1])
    slope = here.slope - weight * here.point
    step = solve(here.curvature, slope, weight)
    return step, np.sum(slope * step, axis=-1)


def _worse(there: Expansion, here: Expansion, ridge: np.ndarray, width: int) -> np.ndarray:
    """Whether a step has lowered the penalised log likelihood."""
    weight = diagonal(ridge, width, here.point.shape[-1])
    new, old = (one.value - 0.5 * np.sum(weight * one.point**2, axis=-1) for one in (there, here))
    return new < old - ROUNDING * (1.0 + np.abs(new))


def _like(flag: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A flag for each regression, shaped to go with its values."""
    return flag.reshape(*flag.shape, *[1] * (values.ndim - flag.ndim))
