"""What treatment is explained by when a study is looked at: values, and whether they are missing."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.disclosure.limits import CELL
from unpooled.methods.aipw.stages import propensity
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Parameters, Scaling
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage


class Regressors(NamedTuple):
    """Covariates, then incomplete columns (their mean where missing), then whether each is missing."""

    names: tuple[str, ...]
    flag: np.ndarray
    """Which of them are 0/1."""
    mean: np.ndarray
    sd: np.ndarray
    """What a value was moved and divided by."""
    incomplete: int
    """How many features may be missing."""

    @property
    def width(self) -> int:
        return len(self.flag)

    @property
    def balanced(self) -> int:
        """How many have a mean of their own among people who have a value: all but the last ones."""
        return self.width - self.incomplete


def regressors(scaling: Scaling, names: tuple[str, ...] = ()) -> Regressors:
    """From the numbers that all sites agreed on; names are those of the schema's features, where known."""
    kinds = [column.kind for column in scaling.incomplete_columns for _ in range(column.width)]
    flag = np.array([kind in ("binary", "categorical") for kind in kinds], dtype=bool)
    width = len(kinds)
    flags = np.concatenate([~np.isnan(np.asarray(scaling.binary_rate, float)), flag, np.ones(width, bool)])
    mean = np.concatenate([scaling.mean, scaling.incomplete_mean, np.zeros(width)])
    sd = np.concatenate([scaling.sd, scaling.incomplete_sd, np.ones(width)])
    named = (*names, *(f"{name} missing" for name in names[len(names) - width :])) if width else names
    return Regressors(tuple(named), flags, mean, sd, width)


def with_regressors(rows: Rows, fold: np.ndarray) -> Rows:
    """The same people with these regressors for covariates, and folds of their own."""
    missing = rows.present[:, None] * (1.0 - rows.seen)
    extra = len(rows.present) - len(fold)
    return Rows(
        covariates=jnp.concatenate([rows.covariates, rows.incomplete * rows.seen, missing], axis=1),
        treatment=rows.treatment,
        outcome=rows.outcome,
        present=rows.present,
        fold=jnp.asarray(np.pad(fold.astype(np.int32), (0, extra), constant_values=-1)),
        site=rows.site,
        incomplete=rows.incomplete[:, :0],
        seen=rows.seen,
    )


BINS = 20
"""Of the propensity, from 0 to 1."""


class Balance(Stage):
    """Sums by arm of every regressor among those who have it, plain and weighted; propensities, in bins.

    A site keeps back what few people stand behind, and says that it did: all of an arm of few people. Where a
    single bin of an arm would be kept back, the next smallest is too: it could be told from the arm's size.
    """

    mean: Float[Array, " f"]
    sd: Float[Array, " f"]
    flag: Array
    trim: float = eqx.field(static=True)
    reveals: ClassVar[str] = (
        "at this site, by arm: number, mean and sd of every covariate, number of missing values, people by "
        "twentieths of their propensity, sum of the weights and of their squares — where at least 5 people "
        "stand behind each; for sums over sites, without that limit: the same, and weighted sums of every "
        "covariate"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        chance = propensity(parameters.per_site["treatment"], rows)
        clipped = jnp.clip(chance, self.trim, 1.0 - self.trim)
        arms = rows.present * jnp.stack([1.0 - rows.treatment, rows.treatment])
        weight = arms / jnp.stack([1.0 - clipped, clipped])
        values, known = _known(rows)
        sums = {"people": arms @ known, "sum": arms @ (known * values), "square": arms @ (known * values**2)}
        weighted = {"weight": weight @ known, "weighted": weight @ (known * values)}
        people = arms.sum(axis=1)
        whole = {"arms": people, "weights": weight.sum(axis=1), "weight_squares": (weight**2).sum(axis=1)}
        place = jnp.clip((chance * BINS).astype(int), 0, BINS - 1)
        histogram = arms @ (place[:, None] == jnp.arange(BINS))
        kept, shown = self._kept(sums, people), _shown(histogram)
        each = {name: jnp.where(kept, found, 0.0) for name, found in sums.items()}
        each |= {"kept": kept.astype(float), "histogram": jnp.where(shown, histogram, 0.0)}
        each |= {"shown": shown.astype(float)}
        each |= {name: jnp.where(_few(people), 0.0, found) for name, found in whole.items()}
        return Statistics({**sums, **weighted, **whole, "histogram": histogram}, each)

    def _kept(self, sums: dict[str, Array], people: Array) -> Array:
        """Features of which each arm has enough values, enough of both kinds, and not few missing ones."""
        ones = sums["people"] * self.mean + sums["sum"] * self.sd
        groups = jnp.stack([ones, sums["people"] - ones])
        small = jnp.any(_few(jnp.round(groups)), axis=(0, 1)) & self.flag
        gaps = people[:, None] - sums["people"]
        return ~(small | jnp.any(_few(sums["people"]) | _few(gaps), axis=0))


def _known(rows: Rows) -> tuple[Array, Array]:
    """Every regressor, and who has it: the flags of what is missing are everybody's."""
    width = rows.seen.shape[1]
    everybody = jnp.ones((len(rows.present), rows.covariates.shape[1] - 2 * width))
    known = jnp.concatenate([everybody, rows.seen, jnp.ones_like(rows.seen)], axis=1)
    return rows.covariates, known


def _few(count: Array) -> Array:
    return (count > 0.0) & (count < CELL)


def _shown(histogram: Float[Array, "2 bins"]) -> Array:
    """Which bins are sent; where few are in those kept back, as in a single one, the next smallest is too."""
    few = _few(histogram) | _few(histogram.sum(axis=1))[:, None]
    alone = _few((few * histogram).sum(axis=1))
    left = jnp.where(few | (histogram == 0.0), jnp.inf, histogram)
    next_smallest = jnp.arange(BINS) == jnp.argmin(left, axis=1)[:, None]
    return ~(few | (alone[:, None] & next_smallest & jnp.isfinite(left)))
