"""A stage: the part of a method that meets the rows, J(θ) = F(θ, Σ_s S_s(θ)).

Parameters are ``{"free": …, "fixed": …}``: the coordinator moves `free`, and gradients are taken with
respect to it; `fixed` says the rest (which fold is held out, which random key is in use). An `each` beside
them holds what concerns one site: it gets its own part only (see `unpooled.protocol.addressing`).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from unpooled.protocol.messages import Tree
from unpooled.protocol.rows import Rows


class Stage(eqx.Module):
    """S, computed beside the rows by a pure JAX function. Array fields are what all parties share."""

    reveals: ClassVar[str]

    @abstractmethod
    def statistics(self, parameters: Tree, rows: Rows) -> Tree:
        """S_s(θ) as ``{"total": …, "each": …}`` for one θ; only the sum of `total` over sites is needed."""


class Objective(Stage):
    """A stage with a scalar F at the coordinator, to be minimised."""

    one_exchange: ClassVar[bool] = False
    """True when F = prior(θ) + S with S a scalar: the cotangent is 1 before S is known, so value and
    gradient come back in one exchange (the paper's Algorithm 1)."""

    @abstractmethod
    def value(self, parameters: Tree, statistics: Tree) -> Float[Array, ""]:
        """F(θ, S)."""
