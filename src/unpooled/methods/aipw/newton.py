"""Logistic regressions of the treatment by Newton's method: one round is one step of all of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.methods.aipw.normal_equations import Sharing, penalty
from unpooled.optimise.procedure import Procedure, ask
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Parameters

STEPS = 8
"""Most rounds; four or five are usual."""
ENOUGH = 1e-10
"""Log likelihood still to be gained at which the last step is taken unseen: its error is the square of it."""


class Propensity(NamedTuple):
    """Every site's coefficients [batch, site, feature], and how the steps went."""

    coefficients: np.ndarray
    rounds: int
    converged: bool


class State(NamedTuple):
    """The best point of each regression so far, and the step to be tried from there."""

    point: np.ndarray
    step: np.ndarray
    value: np.ndarray
    gain: np.ndarray
    """Twice the log likelihood that a Newton step promises; infinite after a step that went too far."""


def propensity(sharing: Sharing, without: np.ndarray, ridge: float) -> Procedure[Propensity]:
    """From nothing to the mode; a step that lowers the likelihood is halved."""
    start = np.zeros(sharing.shape(len(without), 1))
    lowest = np.full(start.shape[:-1], -np.inf)
    state, number = State(start, np.zeros_like(start), lowest, -lowest), 0
    while number < STEPS and np.any(state.gain > ENOUGH):
        point, number = state.point + state.step, number + 1
        own = sharing.own(point)[:, :, 0]
        reply = yield from ask(
            "treatment", Parameters(fixed={"without": without}, per_site={"treatment": own})
        )
        state = _advance(state, point, *_seen(sharing, reply, point, ridge))
    near = state.gain <= ENOUGH
    found = sharing.own(state.point + np.where(near[..., None], state.step, 0.0))[:, :, 0]
    return Propensity(found, number, bool(np.all(near)))


def _seen(sharing: Sharing, reply: Statistics, point: np.ndarray, ridge: float) -> tuple[np.ndarray, ...]:
    """The penalised log likelihood at a point, the Newton step from it, and what that step promises."""
    gram, score, rest = sharing.system(reply)
    weight = penalty(point.shape[-1], ridge)
    value = rest["likelihood"] - 0.5 * np.sum(weight * point**2, axis=-1)
    slope = score - weight * point
    step = np.linalg.solve(gram + np.diag(weight), slope[..., None])[..., 0]
    return value, step, np.sum(slope * step, axis=-1)


def _advance(state: State, point: np.ndarray, value: np.ndarray, step: np.ndarray, gain: np.ndarray) -> State:
    worse = value < state.value - 1e-9 * (1.0 + np.abs(value))
    back = worse[..., None]
    return State(
        np.where(back, state.point, point),
        np.where(back, 0.5 * state.step, step),
        np.where(worse, state.value, value),
        np.where(worse, np.inf, gain),
    )
