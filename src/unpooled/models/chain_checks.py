"""Verdicts on Markov chains: whether they have mixed, and how many draws the average effect rests on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from unpooled.maths.convergence import effective_draws, split_rhat
from unpooled.protocol.records import Check

LARGEST_RHAT = 1.03
"""Largest R̂ of the average effect in chains that have mixed."""
LARGEST_OF_ALL = 1.1
"""Largest R̂ of any other quantity. It is the largest of up to hundreds, each with an error by chance."""
AVERAGE = "average effect"
EFFECTIVE = 200.0
"""Effective draws of the average effect that are required of a fit with at least `ENOUGH` draws."""
ENOUGH = 160


class Mixing(NamedTuple):
    """R̂ of what is monitored, and the effective draws of the average effect."""

    rhat: dict[str, float]
    """R̂ of the average effect, and the largest R̂ of each group of other quantities."""
    effective: float
    required: float
    sweeps: int
    """Number of sweeps on which both rest."""
    unjudged: dict[str, float]
    """R̂ of quantities that are shown, and do not count."""

    @property
    def excess(self) -> float:
        """The largest R̂ − 1 in units of what is allowed; at most 1 if chains have mixed."""
        others = [value for name, value in self.rhat.items() if name != AVERAGE]
        allowed = (self.rhat[AVERAGE] - 1.0) / (LARGEST_RHAT - 1.0)
        return max(allowed, (max(others, default=1.0) - 1.0) / (LARGEST_OF_ALL - 1.0))

    @property
    def mixed(self) -> bool:
        return all(check.passed for check in self.checks(""))

    def checks(self, setting: str) -> tuple[Check, ...]:
        """The verdicts; `setting` is the name of the setting that allows more sweeps."""
        longer = f"; allow more by `{setting}`, or distrust the intervals"
        average, many = self.rhat[AVERAGE], self.effective >= self.required
        others = {name: value for name, value in self.rhat.items() if name != AVERAGE}
        found = [
            Check.at_most(
                "convergence", average, LARGEST_RHAT,
                f"R̂ of the average effect over {self.sweeps} sweeps"
                + ("" if average <= LARGEST_RHAT else f": the chains have not mixed{longer}"),
            ),
            Check.at_least(
                "effective draws", self.effective, self.required,
                f"independent draws to which the {self.sweeps} sweeps of the average effect are equivalent"
                + ("" if many else longer),
            ),
        ]  # fmt: skip
        if others:
            worst = max(others, key=lambda name: others[name])
            mixed = others[worst] <= LARGEST_OF_ALL
            found.append(
                Check.at_most(
                    "convergence of parameters", others[worst], LARGEST_OF_ALL,
                    f"largest R̂ of any parameter over {self.sweeps} sweeps, one of the {worst}"
                    + ("" if mixed else f": the chains have not mixed{longer}"),
                )
            )  # fmt: skip
        return tuple(found)

    def summary(self) -> dict[str, object]:
        """For the diagnostics of a fit."""
        rhat = self.rhat | self.unjudged
        return {"rhat": rhat, "effective_draws": self.effective, "sweeps": self.sweeps}


def required_draws(draws: int) -> float:
    """Effective draws that are required of a fit with this number of draws.

    >>> required_draws(160), required_draws(40)
    (200.0, 50.0)
    """
    return min(EFFECTIVE, EFFECTIVE / ENOUGH * draws)


def measure(
    monitored: Mapping[str, Float[np.ndarray, "t c ..."]],
    effect: Float[np.ndarray, "t c"],
    required: float,
    unjudged: Collection[str] = (),
) -> Mixing:
    """Measure chains by their draws [sweep, chain, …] of identified quantities and of the average effect."""
    rhat = {name: float(np.max(split_rhat(one))) for name, one in monitored.items() if one.size}
    rhat[AVERAGE] = float(split_rhat(effect))
    shown = {name: rhat.pop(name) for name in unjudged if name in rhat}
    return Mixing(rhat, float(effective_draws(effect)), required, len(effect), shown)
