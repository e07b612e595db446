"""E-value: how strong unmeasured confounding must be to explain an estimate away.

VanderWeele and Ding (2017), Sensitivity analysis in observational research: introducing the E-value.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class EValue(NamedTuple):
    """Risk ratios, and the E-values of the estimate and of the interval's end nearest to no effect."""

    ratio: float
    ratio_lower: float
    ratio_upper: float
    estimate: float
    interval: float


def e_value(ratio: float) -> float:
    """The least risk ratio with both treatment and outcome that explains a risk ratio away.

    >>> round(e_value(3.9), 2), round(e_value(1 / 3.9), 2), e_value(1.0)
    (7.26, 7.26, 1.0)
    """
    if not 0.0 < ratio < math.inf:
        return math.nan if math.isnan(ratio) else math.inf
    larger = max(ratio, 1.0 / ratio)
    return larger + math.sqrt(larger * (larger - 1.0))


def of_ratios(ratio: float, lower: float, upper: float) -> EValue:
    """Of an estimate and its interval; an interval that holds 1 needs no confounding.

    >>> round(of_ratios(3.9, 1.8, 8.7).interval, 2)
    3.0
    """
    nearest = 1.0 if lower <= 1.0 <= upper else lower if lower > 1.0 else upper
    return EValue(ratio, lower, upper, e_value(ratio), e_value(nearest))


def of_difference(estimate: float, sd: float, outcome_sd: float) -> EValue:
    """Of a difference of means d sds wide: the risk ratio is about exp(0.91·d), its end 1.78·se away."""
    centre, reach = 0.91 * estimate / outcome_sd, 1.78 * sd / outcome_sd
    return of_ratios(*(math.exp(min(power, 700.0)) for power in (centre, centre - reach, centre + reach)))


def of_means(estimate: float, lower: float, upper: float, mean: float, share: float) -> EValue:
    """Of a difference of risks or of mean counts: the ratio of the two arms' averages over everybody.

    What these people's outcomes are on average is known, and so is the share treated. With the average
    effect τ the arms' averages are mean + (1 − share)·τ and mean − share·τ.
    """

    def ratio(effect: float) -> float:
        treated, control = mean + (1.0 - share) * effect, mean - share * effect
        return max(treated, 0.0) / control if control > 0.0 else math.inf

    return of_ratios(ratio(estimate), ratio(lower), ratio(upper))
