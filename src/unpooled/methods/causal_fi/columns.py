"""The incomplete columns: their layout, and the model of those with discrete levels.

Every column is encoded by one or more standardised features; a categorical column has a 0/1 feature for each
level but one. Columns with levels (0/1, categorical, count) are modelled in sequence by sequential probits:
at each step the value either stops at the current level or moves on to the next. Numeric columns follow,
jointly normal given x and the levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unpooled.maths.linear_algebra import pack
from unpooled.maths.normal import latent, log_probit, uniforms
from unpooled.methods.causal_fi.settings import CausalFIContext
from unpooled.protocol.records import Arrays, IncompleteColumn
from unpooled.protocol.rows import Rows
from unpooled.study import LARGEST_COUNT

EVENLY = 0.5
"""Tempering exponent: levels are proposed in proportion to their probability to this power, so that an
outcome can select levels that are rare a priori."""
CURVE = 2
"""Number of coefficients by which the steps of a count differ from each other."""


class PlacedColumn(NamedTuple):
    """A column's kind, and the position of its features among those of all incomplete columns."""

    kind: str
    first: int
    width: int

    @property
    def places(self) -> tuple[int, ...]:
        return tuple(range(self.first, self.first + self.width))


class Layout(eqx.Module):
    """All incomplete columns, with the mean and sd by which their features were standardised."""

    columns: tuple[PlacedColumn, ...] = eqx.field(static=True)
    mean: Float[Array, " u"]
    sd: Float[Array, " u"]

    @property
    def discrete(self) -> tuple[PlacedColumn, ...]:
        """Columns with levels, in the order in which they are modelled: counts, categorical, 0/1."""
        order = ("count", "categorical", "binary")
        return tuple(column for kind in order for column in self.columns if column.kind == kind)

    @property
    def level_positions(self) -> np.ndarray:
        """Positions of the features of columns with levels."""
        return np.array([place for column in self.discrete for place in column.places], dtype=int)

    @property
    def numbers(self) -> np.ndarray:
        """Positions of the numeric columns."""
        return np.array([column.first for column in self.columns if column.kind == "numeric"], dtype=int)

    def before_numbers(self, first: int) -> np.ndarray:
        """Positions in g = (1, x, u) of the regressors of the numbers; u begins at `first`."""
        return np.concatenate([np.arange(first), first + self.level_positions])

    def levels(self, column: PlacedColumn) -> Float[Array, "l f"]:
        """The features of each level; a category's reference level, which has no feature, comes last."""
        if column.kind == "count":
            raw = np.arange(LARGEST_COUNT + 1.0)[:, None]
        else:
            raw = np.concatenate([np.eye(column.width), np.zeros((1, column.width))])
        places = np.array(column.places)
        return (jnp.asarray(raw) - self.mean[places]) / self.sd[places]


def layout_of(context: CausalFIContext) -> Layout:
    """The layout of a study's incomplete columns."""
    return make_layout(context.columns, context.incomplete_mean, context.incomplete_sd)


def make_layout(columns: tuple[IncompleteColumn, ...], mean: np.ndarray, sd: np.ndarray) -> Layout:
    """The layout of the given columns.

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


def most_incomplete(layout: Layout, observed: Float[np.ndarray, "m u"]) -> int:
    """Position of the numeric column of which the fewest values are observed; 0 if there are no numbers."""
    numbers = layout.numbers
    return int(numbers[np.argmin(observed[:, numbers].sum(axis=0))]) if len(numbers) else 0


class Place(NamedTuple):
    """A column with levels, its first step among all steps, and its first feature among `level_positions`."""

    column: PlacedColumn
    step: int
    feature: int

    @property
    def steps(self) -> int:
        return 1 if self.column.kind == "count" else self.column.width


def places(layout: Layout) -> list[Place]:
    """All columns with levels, in the order in which they are modelled."""
    found, step, feature = [], 0, 0
    for column in layout.discrete:
        found.append(Place(column, step, feature))
        step, feature = step + found[-1].steps, feature + column.width
    return found


def allowed(layout: Layout, covariates: int) -> np.ndarray:
    """Which regressors each step depends on, among 1, x, the levels' features and a count's curve."""
    base = 1 + covariates
    rows = []
    for place in places(layout):
        one = np.zeros(base + len(layout.level_positions) + CURVE, dtype=bool)
        one[: base + place.feature] = True
        one[len(one) - CURVE :] = place.column.kind == "count"
        rows += [one] * place.steps
    return np.stack(rows) if rows else np.zeros((0, base + CURVE), dtype=bool)


def asked_of_all(layout: Layout) -> np.ndarray:
    """Which steps everybody takes part in: the first of a category, and the only one of a 0/1 column."""
    found = [
        place.column.kind != "count" and step == 0 for place in places(layout) for step in range(place.steps)
    ]
    return np.array(found, dtype=bool)


class Level(NamedTuple):
    """A proposed filling of every person's columns with levels."""

    features: Float[Array, "n b"]
    log_weight: Float[Array, " n"]
    """Log probability of the levels minus the log probability of proposing them."""
    left: Float[Array, " n"]
    """The unused digits of the uniform number from which the levels were drawn; again uniform."""


def fill_levels(
    layout: Layout, steps: Float[Array, "k q"], rows: Rows, uniform: Float[Array, " n"], shift: Array | None
) -> Level:
    """Fill missing levels from one uniform number per person, whose digits serve the columns in turn.

    A `shift` [n, u] is added on the probit scale for missing values: it makes 1 more likely in a 0/1 column,
    and larger values more likely in a count.
    """
    features = jnp.zeros((len(uniform), len(layout.level_positions)))
    log_weight = jnp.zeros_like(uniform)
    for place in places(layout):
        logs = _log_probabilities(_shifted(place, _predictors(place, steps, _design(rows, features)), shift))
        proposed = jax.nn.softmax(EVENLY * logs, axis=1)
        reached = proposed @ np.tri(proposed.shape[1]).T
        drawn = jnp.sum(reached[:, :-1] < uniform[:, None], axis=1)
        seen = rows.seen[:, place.column.first] > 0.0
        level = jnp.where(seen, which(layout, place.column, rows), drawn)
        own = jnp.arange(len(level)), level
        log_weight += logs[own] - jnp.where(seen, 0.0, jnp.log(proposed[own]))
        rest = 1.0 - (reached[own] - uniform) / proposed[own]
        uniform = jnp.where(seen, uniform, jnp.clip(rest, 1e-12, 1.0 - 1e-12))
        end = place.feature + place.column.width
        features = features.at[:, place.feature : end].set(layout.levels(place.column)[level])
    return Level(features, log_weight, uniform)


def which(layout: Layout, column: PlacedColumn, rows: Rows) -> Int[Array, " n"]:
    """The index of the observed level; arbitrary if the value is missing."""
    difference = rows.incomplete[:, None, np.array(column.places)] - layout.levels(column)
    return jnp.argmin(jnp.sum(difference**2, axis=2), axis=1)


def level_sums(
    layout: Layout, steps: Float[Array, "k q"], rows: Rows, use: Float[Array, " n"], shift: Array | None,
    key: Array,
) -> Arrays:  # fmt: skip
    """Sums of the steps' probit regressions over imputed rows: scores, and products of the regressors.

    The products of steps that everybody takes part in equal those of all confounders and are left out.
    """
    design = _design(rows, rows.incomplete[:, layout.level_positions])
    width = design.shape[1]
    scores, grams = [], []
    for place, active, drawn in _steps_taken(layout, steps, rows, use, shift, design, key):
        if place.column.kind == "count":
            curve = _curve(len(active))
            scores.append(jnp.concatenate([drawn.sum(axis=0) @ design, drawn.sum(axis=1) @ curve]))
            cross = design.T @ (active.T @ curve)
            products = design.T @ (active.sum(axis=0)[:, None] * design)
            own = curve.T @ (active.sum(axis=1)[:, None] * curve)
            grams.append(jnp.block([[products, cross], [cross.T, own]]))
        else:
            scores += list(jnp.pad(drawn @ design, ((0, 0), (0, CURVE))))
            grams += [jnp.pad(design.T @ (one[:, None] * design), (0, CURVE)) for one in active[1:]]
    empty = jnp.zeros((0, width + CURVE))
    return {
        "score": jnp.stack(scores) if scores else empty,
        "gram": pack(jnp.stack(grams) if grams else empty[..., None] * empty[:, None, :]),
    }


def _steps_taken(
    layout: Layout, steps: Array, rows: Rows, use: Array, shift: Array | None, design: Array, key: Array
) -> Iterator[tuple[Place, Float[Array, "s n"], Float[Array, "s n"]]]:
    """For every column with levels: who takes part in its steps, and the latent variables of those who do."""
    if not layout.discrete:
        return
    every = [_predictors(place, steps, design) for place in places(layout)]
    at_random = jnp.concatenate(every, axis=1).T
    shifted = [_shifted(place, one, shift) for place, one in zip(places(layout), every, strict=True)]
    predicted = jnp.concatenate(shifted, axis=1).T
    step = np.concatenate([np.arange(one.shape[1]) for one in every])[:, None]
    level = jnp.concatenate(
        [
            jnp.broadcast_to(which(layout, place.column, rows), one.shape[::-1])
            for place, one in zip(places(layout), every, strict=True)
        ]
    )
    active, stops = use * (level >= step), level == step

    def draw(number: Array) -> Float[Array, " n"]:
        uniform = uniforms(jax.random.fold_in(key, number), len(use))
        return latent(predicted[number], jnp.ones_like(use), stops[number], uniform) - predicted[number]

    def at(number: Array, found: Float[Array, "s n"]) -> Float[Array, "s n"]:
        # Few people reach the later steps of a count, and often nobody does.
        taken = jnp.any(active[number] > 0.0)
        return found.at[number].set(jax.lax.cond(taken, draw, lambda _: jnp.zeros_like(use), number))

    drawn = active * (at_random + jax.lax.fori_loop(0, len(active), at, jnp.zeros_like(predicted)))
    ends = np.cumsum([one.shape[1] for one in every])
    for place, first, end in zip(places(layout), np.append(0, ends), ends, strict=False):
        yield place, active[first:end], drawn[first:end]


def _design(rows: Rows, features: Float[Array, "n b"]) -> Float[Array, "n p"]:
    return jnp.concatenate([jnp.ones((len(features), 1)), rows.covariates, features], axis=1)


def _predictors(place: Place, steps: Array, design: Float[Array, "n p"]) -> Float[Array, "n s"]:
    """The predictor of every step of the column."""
    own = steps[place.step : place.step + place.steps]
    common = design @ own[:, : design.shape[1]].T
    if place.column.kind != "count":
        return common
    return common + _curve(LARGEST_COUNT) @ own[0, design.shape[1] :]


def _shifted(place: Place, predictors: Float[Array, "n s"], shift: Array | None) -> Float[Array, "n s"]:
    """Add the shift; its sign is reversed for counts, since stopping at a step makes a count smaller."""
    if shift is None:
        return predictors
    more = shift[:, place.column.first, None]
    return predictors - more if place.column.kind == "count" else predictors + more


def _curve(steps: int) -> Float[Array, "s c"]:
    """Regressors by which a count's steps differ: log(1 + k) and k/10."""
    at = np.arange(float(steps))
    return jnp.asarray(np.stack([np.log1p(at), at / 10.0], axis=1))


def _log_probabilities(predictors: Float[Array, "n s"]) -> Float[Array, "n l"]:
    """Log probability of every level: stop at its step after passing all earlier ones, or never stop."""
    none = jnp.zeros((len(predictors), 1))
    # A product with ones takes less to compile than a cumulative sum.
    passed = log_probit(-predictors) @ np.tri(predictors.shape[1]).T
    passed = jnp.concatenate([none, passed], axis=1)
    return passed + jnp.concatenate([log_probit(predictors), none], axis=1)
