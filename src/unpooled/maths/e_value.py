"""E-value: how strong unmeasured confounding would have to be to explain an estimate away.

VanderWeele and Ding (2017), Sensitivity analysis in observational research: introducing the E-value.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class EValue(NamedTuple):
    """The risk ratio with its interval, and the E-values of the estimate and of the limit closest to 1."""

    ratio: float
    ratio_lower: float
    ratio_upper: float
    estimate: float
    interval: float


def e_value(ratio: float) -> float:
    """The smallest risk ratio with both treatment and outcome that would explain this risk ratio away.

    >>> round(e_value(3.9), 2), round(e_value(1 / 3.9), 2), e_value(1.0)
    (7.26, 7.26, 1.0)
    """
    if not 0.0 < ratio < math.inf:
        return math.nan if math.isnan(ratio) else math.inf
    larger = max(ratio, 1.0 / ratio)
    return larger + math.sqrt(larger * (larger - 1.0))


def of_ratios(ratio: float, lower: float, upper: float) -> EValue:
    """The E-values of an estimate and its interval; 1 for an interval that contains 1.

    >>> round(of_ratios(3.9, 1.8, 8.7).interval, 2)
    3.0
    """
    nearest = 1.0 if lower <= 1.0 <= upper else lower if lower > 1.0 else upper
    return EValue(ratio, lower, upper, e_value(ratio), e_value(nearest))


def of_difference(estimate: float, sd: float, outcome_sd: float) -> EValue:
    """E-values of a standardised mean difference d: the risk ratio is about exp(0.91·d ± 1.78·se)."""
    centre, reach = 0.91 * estimate / outcome_sd, 1.78 * sd / outcome_sd
    return of_ratios(*(math.exp(min(power, 700.0)) for power in (centre, centre - reach, centre + reach)))


def of_means(estimate: float, lower: float, upper: float, mean: float, share: float) -> EValue:
    """E-values of a difference of risks or of mean counts, from the ratio of the two potential means.

    `mean` is the average outcome and `share` the share treated. With the average effect τ, the potential
    means are mean + (1 − share)·τ and mean − share·τ.
    """

    def ratio(effect: float) -> float:
        treated, control = mean + (1.0 - share) * effect, mean - share * effect
        return max(treated, 0.0) / control if control > 0.0 else math.inf

    return of_ratios(ratio(estimate), ratio(lower), ratio(upper))
