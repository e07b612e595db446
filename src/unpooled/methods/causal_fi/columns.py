"""The incomplete columns as the model meets them: those with few levels, and those that are numbers.

Every column has one feature or more, all standardised: a category has one 0/1 feature per level but one.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.methods.causal_fi.settings import CausalFIContext
from unpooled.protocol.records import IncompleteColumn
from unpooled.study import LARGEST_COUNT


class Column(NamedTuple):
    """A column's kind, and where its features stand among those of all incomplete columns."""

    kind: str
    first: int
    width: int

    @property
    def places(self) -> tuple[int, ...]:
        return tuple(range(self.first, self.first + self.width))


class Layout(eqx.Module):
    """All incomplete columns, and how their features were standardised."""

    columns: tuple[Column, ...] = eqx.field(static=True)
    mean: Float[Array, " u"]
    sd: Float[Array, " u"]

    @property
    def discrete(self) -> tuple[Column, ...]:
        """Columns with levels, in the order in which they are modelled: those with most levels first."""
        order = ("count", "categorical", "binary")
        return tuple(column for kind in order for column in self.columns if column.kind == kind)

    @property
    def levelled(self) -> np.ndarray:
        """Places of the features of columns with levels."""
        return np.array([place for column in self.discrete for place in column.places], dtype=int)

    @property
    def numbers(self) -> np.ndarray:
        """Places of the columns that are numbers."""
        return np.array([column.first for column in self.columns if column.kind == "numeric"], dtype=int)

    def before_numbers(self, first: int) -> np.ndarray:
        """Places of what the numbers are modelled by among g = (1, x, u), whose u begin at `first`."""
        return np.concatenate([np.arange(first), first + self.levelled])

    def levels(self, column: Column) -> Float[Array, "l f"]:
        """The features of each level: a category's first level, which has no feature, comes last."""
        if column.kind == "count":
            raw = np.arange(LARGEST_COUNT + 1.0)[:, None]
        else:
            raw = np.concatenate([np.eye(column.width), np.zeros((1, column.width))])
        places = np.array(column.places)
        return (jnp.asarray(raw) - self.mean[places]) / self.sd[places]


def layout_of(context: CausalFIContext) -> Layout:
    """Where the features of the incomplete columns stand, and how they were standardised."""
    return make_layout(context.columns, context.incomplete_mean, context.incomplete_sd)


def make_layout(columns: tuple[IncompleteColumn, ...], mean: np.ndarray, sd: np.ndarray) -> Layout:
    """
    >>> columns = IncompleteColumn("age", "numeric", 1), IncompleteColumn("race", "categorical", 2)
    >>> layout = make_layout(columns, np.zeros(3), np.ones(3))
    >>> layout.levels(layout.discrete[0]).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    firsts = np.cumsum([0, *[column.width for column in columns]])[:-1].tolist()
    placed = tuple(
        Column(column.kind, first, column.width) for column, first in zip(columns, firsts, strict=True)
    )
    return Layout(placed, jnp.asarray(mean, dtype=float), jnp.asarray(sd, dtype=float))
