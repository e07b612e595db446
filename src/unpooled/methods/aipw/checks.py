"""Whether the weights of a fit can be trusted: clipped propensities and effective sample size."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Check

CLIPPED = 0.05
"""Largest acceptable share of clipped propensities. Where a propensity is clipped, the estimate leans on the
outcome regression, and the standard error does not cover the error of that regression."""
EFFECTIVE = 0.25
"""Smallest acceptable effective sample size, as a share of the arm."""


class Weights(NamedTuple):
    """Share of clipped propensities, and effective sample size as a share of the arm, the smaller of both."""

    clipped: float
    effective: float


def weights_of(reply: Statistics) -> Weights:
    """The medians over the draws of the folds, from the reply of `scores` or `weighted_outcomes`."""
    sums = reply.summed
    people = np.asarray(sums["arms"])
    effective = np.asarray(sums["weight"]) ** 2 / np.maximum(np.asarray(sums["weight_squares"]), 1e-300)
    clipped = np.asarray(sums["clipped"]) / people.sum(axis=1)
    return Weights(float(np.median(clipped)), float(np.median(np.min(effective / people, axis=1))))


def weight_checks(found: Weights, trim: float) -> tuple[Check, ...]:
    lowest, highest = (np.format_float_positional(one, 6, trim="-") for one in (trim, 1.0 - trim))
    return (
        Check.at_most(
            "clipped propensities", found.clipped, CLIPPED,
            f"Share of people whose propensity is below {lowest} or above {highest} and was moved there. Up "
            "to the threshold, clipping hardly matters. Above it, too many people have no counterpart in the "
            "other arm: the estimate rests on extrapolation by the outcome regression, and its interval is "
            "too narrow. Restrict the study to people who could have received either treatment.",
        ),
        Check.at_least(
            "effective sample size of the fit", found.effective, EFFECTIVE,
            "Effective sample size after weighting, as a share of the arm; the smaller of both shares. From "
            "the threshold on, the weights are spread over enough people. Below it, a few people dominate "
            "the estimate, and its interval may be too narrow.",
        ),
    )  # fmt: skip
