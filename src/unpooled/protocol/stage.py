"""A stage: the part of a method that meets the rows, J(θ) = F(θ, Σ_s S_s(θ))."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import Rows


class Stage(eqx.Module):
    """S, computed beside the rows by a pure JAX function. Its array fields are the same at every party."""

    reveals: ClassVar[str]

    @abstractmethod
    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        """S_s(θ) for one θ."""


class Objective(Stage):
    """A stage with a scalar F at the coordinator, to be minimised."""

    one_exchange: ClassVar[bool] = False
    """True when F = prior(θ) + S with a scalar S: the cotangent is then 1 before S is known, so value and
    gradient come back in one exchange (the paper's Algorithm 1)."""

    @abstractmethod
    def value(self, parameters: Parameters, statistics: Statistics) -> Float[Array, ""]:
        """F(θ, S)."""
