"""Effects of a site's own people as a fit without them predicts, by which methods are compared.

A method that can be a candidate of the super learner says in `Fit.held_out` what its predictions of held-out
people are computed from, and in a `HeldOutEffects` how.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float

from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds


class Predicted(NamedTuple):
    """Everybody's conditional effect, and the variance of its draws."""

    effect: Float[Array, " n"]
    variance: Float[Array, " n"]


class HeldOutEffects(eqx.Module):
    """How a site computes effects of its own people from fits without them; they do not leave the site."""

    @abstractmethod
    def predicted(self, parameters: Parameters, rows: Rows) -> Predicted:
        """For one θ."""

    @abstractmethod
    def bounds(self) -> Bounds:
        """The smallest and largest value of each parameter."""
