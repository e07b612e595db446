"""The incomplete columns as the model meets them: those with few levels, and those that are numbers.

Every column has one feature or more, all standardised: a category has one 0/1 feature per level but one.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.protocol.messages import Tree
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


def describe(scaling: Tree) -> Tree:
    """What all parties must know of the incomplete columns."""
    return {
        "kinds": [kind for _, kind, _ in scaling["incomplete_columns"]],
        "widths": [width for _, _, width in scaling["incomplete_columns"]],
        "mean": scaling["incomplete_mean"],
        "sd": scaling["incomplete_sd"],
    }


def layout_of(described: Tree) -> Layout:
    """
    >>> told = {"kinds": ["numeric", "categorical"], "widths": [1, 2], "mean": [0, 0, 0], "sd": [1, 1, 1]}
    >>> layout_of(told).levels(layout_of(told).discrete[0]).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    widths = [int(width) for width in described["widths"]]
    firsts = np.cumsum([0, *widths])[:-1].tolist()
    columns = tuple(
        Column(str(kind), first, width)
        for kind, first, width in zip(described["kinds"], firsts, widths, strict=True)
    )
    mean, sd = (jnp.asarray(described[name], dtype=float) for name in ("mean", "sd"))
    return Layout(columns, mean, sd)
