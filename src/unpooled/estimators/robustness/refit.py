"""The average effect of a refit, the result of a robustness check, and the largest change over refits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from unpooled.estimators.base import Estimator


class Refit(NamedTuple):
    """The average effect of one fit, with its 95% interval."""

    estimate: float
    lower: float
    upper: float
    sd: float

    @property
    def includes_zero(self) -> bool:
        return self.lower <= 0.0 <= self.upper


@dataclass(frozen=True)
class RobustnessCheck:
    """The result of one robustness check, with an explanation in `words`."""

    test: str
    estimate: float
    lower: float
    upper: float
    worrying: bool
    words: str
    refits: tuple[Refit, ...] = ()


def average_effect(model: Estimator) -> Refit:
    """The average effect of a fitted model."""
    lower, upper = model.ate_interval()
    return Refit(model.ate(), lower, upper, float(model.ate_draws().std()))


def furthest(refits: Sequence[Refit], main: Refit) -> tuple[Refit, float]:
    """The refit furthest from the main analysis, and its distance in sds of the main analysis.

    >>> main = Refit(1.0, 0.6, 1.4, 0.2)
    >>> round(furthest([Refit(1.1, 0.7, 1.5, 0.2), Refit(0.7, 0.3, 1.1, 0.2)], main)[1], 6)
    1.5
    """
    worst = max(refits, key=lambda one: abs(one.estimate - main.estimate))
    return worst, abs(worst.estimate - main.estimate) / max(main.sd, 1e-300)


def times(refits: Sequence[Refit]) -> str:
    """The number of refits in words."""
    return "once" if len(refits) == 1 else f"{len(refits)} times"
