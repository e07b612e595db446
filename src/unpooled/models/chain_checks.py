"""Verdicts on Markov chains: whether they have mixed, and how many draws the average effect rests on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from unpooled.maths.convergence import effective_draws, split_rhat
from unpooled.protocol.records import Check

LARGEST_RHAT = 1.03
"""Largest R̂ of chains that have mixed."""
EFFECTIVE = 200.0
"""Effective draws of the average effect that are required of a fit with at least `ENOUGH` draws."""
ENOUGH = 160


class Mixing(NamedTuple):
    """R̂ of what is monitored, and the effective draws of the average effect."""

    rhat: dict[str, float]
    """The largest R̂ of each group of quantities."""
    effective: float
    required: float
    sweeps: int
    """Number of sweeps on which both rest."""
    unjudged: dict[str, float]
    """R̂ of quantities that no reported effect depends on. They are shown, and do not count."""

    @property
    def largest(self) -> float:
        return max(self.rhat.values())

    @property
    def mixed(self) -> bool:
        return self.largest <= LARGEST_RHAT and self.effective >= self.required

    def checks(self, setting: str) -> tuple[Check, Check]:
        """The verdicts; `setting` is the name of the setting that allows more sweeps."""
        worst = max(self.rhat, key=lambda name: self.rhat[name])
        longer = f"; allow more by `{setting}`, or distrust the intervals"
        mixed, many = self.largest <= LARGEST_RHAT, self.effective >= self.required
        return (
            Check.at_most(
                "convergence", self.largest, LARGEST_RHAT,
                f"largest R̂ of the chains over {self.sweeps} sweeps, that of the {worst}"
                + ("" if mixed else f": the chains have not mixed{longer}"),
            ),
            Check.at_least(
                "effective draws", self.effective, self.required,
                f"independent draws to which the {self.sweeps} sweeps of the average effect are equivalent"
                + ("" if many else longer),
            ),
        )  # fmt: skip

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
    rhat["average effect"] = float(split_rhat(effect))
    shown = {name: rhat.pop(name) for name in unjudged if name in rhat}
    return Mixing(rhat, float(effective_draws(effect)), required, len(effect), shown)
