"""A stage: the part of a method that meets the rows, J(θ) = F(θ, Σ_s S_s(θ))."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from jaxtyping import Array

from unpooled.protocol.messages import Tree
from unpooled.protocol.rows import Rows


class Stage(ABC):
    """S, computed beside the rows by a pure JAX function. Classes are abstract or final."""

    name: ClassVar[str]
    reveals: ClassVar[str]

    @abstractmethod
    def statistics(self, parameters: Tree, rows: Rows, key: Array) -> Tree:
        """S_s(θ) as ``{"total": …, "each": …}`` for one θ of the batch; `total` is summed over sites."""


class Objective(Stage):
    """A stage with a scalar F at the coordinator, to be minimised."""

    one_exchange: ClassVar[bool] = False
    """True when F = prior(θ) + S: the cotangent is 1 before S is known, so one exchange brings both."""

    @abstractmethod
    def value(self, parameters: Tree, statistics: Tree) -> Any:
        """F(θ, S)."""
