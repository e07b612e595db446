"""The incomplete columns as the model meets them: those with few levels, and those that are numbers.

Every column has one feature or more, all standardised: a category has one 0/1 feature per level but one.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unpooled.maths.linear_algebra import pack
from unpooled.maths.normal import latent, log_probit
from unpooled.methods.causal_fi.settings import CausalFIContext
from unpooled.protocol.records import Arrays, IncompleteColumn
from unpooled.protocol.rows import Rows
from unpooled.study import LARGEST_COUNT


class PlacedColumn(NamedTuple):
    """A column's kind, and where its features stand among those of all incomplete columns."""

    kind: str
    first: int
    width: int

    @property
    def places(self) -> tuple[int, ...]:
        return tuple(range(self.first, self.first + self.width))


class Layout(eqx.Module):
    """All incomplete columns, and how their features were standardised."""

    columns: tuple[PlacedColumn, ...] = eqx.field(static=True)
    mean: Float[Array, " u"]
    sd: Float[Array, " u"]

    @property
    def discrete(self) -> tuple[PlacedColumn, ...]:
        """ColumnRoles with levels, in the order in which they are modelled: those with most levels first."""
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

    def levels(self, column: PlacedColumn) -> Float[Array, "l f"]:
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
        PlacedColumn(column.kind, first, column.width) for column, first in zip(columns, firsts, strict=True)
    )
    return Layout(placed, jnp.asarray(mean, dtype=float), jnp.asarray(sd, dtype=float))


EVENLY = 0.5
"""Levels are tried as the root of their chance has it: an outcome may speak for what is rare beforehand."""
CURVE = 2
"""Coefficients by which the steps of a count differ."""


class Level(NamedTuple):
    """One way to fill the columns with levels, of every person."""

    features: Float[Array, "n b"]
    log_weight: Float[Array, " n"]
    """How likely the levels are beside how often they are tried."""
    left: Float[Array, " n"]
    """What is left of the uniform number that the levels were drawn by: uniform again."""


class Place(NamedTuple):
    """A column, its first step among all steps, and its first feature among those of columns with levels."""

    column: PlacedColumn
    step: int
    feature: int

    @property
    def steps(self) -> int:
        return 1 if self.column.kind == "count" else self.column.width


def places(layout: Layout) -> list[Place]:
    found, step, feature = [], 0, 0
    for column in layout.discrete:
        found.append(Place(column, step, feature))
        step, feature = step + found[-1].steps, feature + column.width
    return found


def allowed(layout: Layout, covariates: int) -> np.ndarray:
    """Which of 1, x, features with levels, and a count's curve each step depends on: [steps, all]."""
    base = 1 + covariates
    rows = []
    for place in places(layout):
        one = np.zeros(base + len(layout.levelled) + CURVE, dtype=bool)
        one[: base + place.feature] = True
        one[len(one) - CURVE :] = place.column.kind == "count"
        rows += [one] * place.steps
    return np.stack(rows) if rows else np.zeros((0, base + CURVE), dtype=bool)


def asked_of_all(layout: Layout) -> np.ndarray:
    """Steps that everybody takes: the first of a category, and a 0/1 column's only one."""
    found = [
        place.column.kind != "count" and step == 0 for place in places(layout) for step in range(place.steps)
    ]
    return np.array(found, dtype=bool)


def fill_levels(
    layout: Layout, steps: Float[Array, "k q"], rows: Rows, uniform: Float[Array, " n"], shift: Array | None
) -> Level:
    """Levels of everybody: seen ones kept, others by a uniform number, whose digits are used up in turn.

    A `shift` [n, u] makes a 0/1 column that is missing more often 1, and a count larger, by so many probits.
    """
    features = jnp.zeros((len(uniform), len(layout.levelled)))
    log_weight = jnp.zeros_like(uniform)
    for place in places(layout):
        chances = _log_chances(_shifted(place, _predictors(place, steps, _design(rows, features)), shift))
        tried = jax.nn.softmax(EVENLY * chances, axis=1)
        reached = jnp.cumsum(tried, axis=1)
        drawn = jnp.sum(reached[:, :-1] < uniform[:, None], axis=1)
        seen = rows.seen[:, place.column.first] > 0.0
        level = jnp.where(seen, which(layout, place.column, rows), drawn)
        own = jnp.arange(len(level)), level
        log_weight += chances[own] - jnp.where(seen, 0.0, jnp.log(tried[own]))
        rest = 1.0 - (reached[own] - uniform) / tried[own]
        uniform = jnp.where(seen, uniform, jnp.clip(rest, 1e-12, 1.0 - 1e-12))
        end = place.feature + place.column.width
        features = features.at[:, place.feature : end].set(layout.levels(place.column)[level])
    return Level(features, log_weight, uniform)


def which(layout: Layout, column: PlacedColumn, rows: Rows) -> Int[Array, " n"]:
    """The level that is seen; anything where none is."""
    away = rows.incomplete[:, None, np.array(column.places)] - layout.levels(column)
    return jnp.argmin(jnp.sum(away**2, axis=2), axis=1)


def level_sums(
    layout: Layout, steps: Float[Array, "k q"], rows: Rows, use: Float[Array, " n"], shift: Array | None,
    key: Array,
) -> Arrays:  # fmt: skip
    """What the steps' regressions need, of completed rows: by step latents times features, and products.

    Products of steps that everybody takes are those of all confounders, so only the others' are given.
    """
    design = _design(rows, rows.incomplete[:, layout.levelled])
    width = design.shape[1]
    scores, grams = [], []
    for place, one in zip(places(layout), jax.random.split(key, len(places(layout)) + 1), strict=False):
        level = which(layout, place.column, rows)[:, None]
        at_random = _predictors(place, steps, design)
        predicted = _shifted(place, at_random, shift)
        step = jnp.arange(predicted.shape[1])
        active = use[:, None] * (level >= step)
        drawn = latent(predicted, jnp.ones_like(predicted), level == step, one)
        drawn = active * (drawn - predicted + at_random)
        if place.column.kind == "count":
            curve = _curve(predicted.shape[1])
            scores.append(jnp.concatenate([drawn.sum(axis=1) @ design, drawn.sum(axis=0) @ curve]))
            cross = design.T @ (active @ curve)
            products = design.T @ (active.sum(axis=1)[:, None] * design)
            own = curve.T @ (active.sum(axis=0)[:, None] * curve)
            grams.append(jnp.block([[products, cross], [cross.T, own]]))
        else:
            scores += [jnp.pad(drawn[:, j] @ design, (0, CURVE)) for j in range(place.steps)]
            grams += [
                jnp.pad(design.T @ (active[:, j, None] * design), (0, CURVE)) for j in range(1, place.steps)
            ]
    empty = jnp.zeros((0, width + CURVE))
    return {
        "score": jnp.stack(scores) if scores else empty,
        "gram": pack(jnp.stack(grams) if grams else empty[..., None] * empty[:, None, :]),
    }


def _design(rows: Rows, features: Float[Array, "n b"]) -> Float[Array, "n p"]:
    return jnp.concatenate([jnp.ones((len(features), 1)), rows.covariates, features], axis=1)


def _predictors(place: Place, steps: Array, design: Float[Array, "n p"]) -> Float[Array, "n s"]:
    """Of every step towards a level of the column."""
    own = steps[place.step : place.step + place.steps]
    common = design @ own[:, : design.shape[1]].T
    if place.column.kind != "count":
        return common
    return common + _curve(LARGEST_COUNT) @ own[0, design.shape[1] :]


def _shifted(place: Place, predictors: Float[Array, "n s"], shift: Array | None) -> Float[Array, "n s"]:
    """To stop at a step makes a count smaller, and a 0/1 column 1."""
    if shift is None:
        return predictors
    more = shift[:, place.column.first, None]
    return predictors - more if place.column.kind == "count" else predictors + more


def _curve(steps: int) -> Float[Array, "s c"]:
    at = np.arange(float(steps))
    return jnp.asarray(np.stack([np.log1p(at), at / 10.0], axis=1))


def _log_chances(predictors: Float[Array, "n s"]) -> Float[Array, "n l"]:
    """Stop at this step, having gone on at all before; or never stop."""
    none = jnp.zeros((len(predictors), 1))
    passed = jnp.concatenate([none, jnp.cumsum(log_probit(-predictors), axis=1)], axis=1)
    return passed + jnp.concatenate([log_probit(predictors), none], axis=1)
