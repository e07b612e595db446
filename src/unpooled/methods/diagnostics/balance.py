"""Regressors of the diagnostic propensity model, and the stage that computes balance and overlap.

The regressors are the covariates, the incomplete covariates with their mean in place of missing values, and
an indicator of missingness for each of these. Sites withhold sums that come from too few people.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.disclosure.effective_people import capped
from unpooled.disclosure.limits import CELL
from unpooled.methods.aipw.stages import REGRESSIONS, propensity
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Parameters, Scaling
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds, Stage

BINS = 20
"""Number of bins of the propensity histogram on [0, 1], as it is shown."""
HALVINGS = 10
"""The first and the last bin are divided at halves of their width, of their halves, and so on: where the
treatment is rare, nearly all propensities are in the first bin."""
_TAIL = 0.5 ** np.arange(1, HALVINGS + 1) / BINS
EDGES = np.unique(np.round([*np.linspace(0.0, 1.0, BINS + 1), *_TAIL, *(1.0 - _TAIL)], 12))
"""Edges of the bins that are sent."""
SHOWN_BIN = np.clip((0.5 * (EDGES[:-1] + EDGES[1:]) * BINS).astype(int), 0, BINS - 1)
"""The shown bin that each bin belongs to."""


class Regressors(NamedTuple):
    """Covariates, then incomplete columns (mean-imputed), then their missingness indicators."""

    names: tuple[str, ...]
    flag: np.ndarray
    """Which regressors are 0/1."""
    mean: np.ndarray
    sd: np.ndarray
    """Mean and sd by which the values were standardised."""
    incomplete: int
    """Number of features that may be missing."""

    @property
    def width(self) -> int:
        return len(self.flag)

    @property
    def balanced(self) -> int:
        """Number of regressors other than missingness indicators."""
        return self.width - self.incomplete


def regressors(scaling: Scaling, names: tuple[str, ...] = ()) -> Regressors:
    """The regressors of a study; `names` are the names of the schema's features, if available."""
    kinds = [column.kind for column in scaling.incomplete_columns for _ in range(column.width)]
    flag = np.array([kind in ("binary", "categorical") for kind in kinds], dtype=bool)
    width = len(kinds)
    flags = np.concatenate([~np.isnan(np.asarray(scaling.binary_rate, float)), flag, np.ones(width, bool)])
    mean = np.concatenate([scaling.mean, scaling.incomplete_mean, np.zeros(width)])
    sd = np.concatenate([scaling.sd, scaling.incomplete_sd, np.ones(width)])
    named = (*names, *(f"{name} missing" for name in names[len(names) - width :])) if width else names
    return Regressors(tuple(named), flags, mean, sd, width)


def with_regressors(rows: Rows, fold: np.ndarray) -> Rows:
    """The same people with the regressors as covariates and the given folds."""
    missing = rows.people[:, None] * (1.0 - rows.seen)
    extra = len(rows.present) - len(fold)
    return Rows(
        covariates=jnp.concatenate([rows.covariates, rows.incomplete * rows.seen, missing], axis=1),
        treatment=rows.treatment,
        outcome=rows.outcome,
        present=rows.present,
        fold=jnp.asarray(np.pad(fold.astype(np.int32), (0, extra), constant_values=-1)),
        site=rows.site,
        salt=rows.salt,
        incomplete=rows.incomplete[:, :0],
        seen=rows.seen,
        cluster=rows.cluster,
        least=rows.least,
    )


class Balance(Stage):
    """Unweighted and weighted sums of every regressor by arm, and a histogram of the propensities.

    In its own statistics a site withholds, and marks, everything computed from too few people. If the
    withheld bins of an arm hold too few people together, so that they could be recovered from the size of
    the arm, the next smallest bin is withheld too.
    """

    mean: Float[Array, " f"]
    sd: Float[Array, " f"]
    flag: Array
    trim: float = eqx.field(static=True)
    often: ClassVar[bool] = False
    in_batches: ClassVar[bool] = True
    reveals: ClassVar[str] = (
        "at this site, by arm: number, mean and sd of every covariate, number of missing values, people by "
        "twentieths of their propensity (the first and last in finer steps), sum of the weights and "
        "of their squares; for sums over sites the same, and weighted sums of every covariate — each only if "
        "it comes from at least 5 people"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        return self._withheld(self.of_batch(parameters, rows))

    def merged(self, parts: Statistics) -> Statistics:
        return jax.vmap(self._withheld)(super().merged(parts))

    def of_batch(self, parameters: Parameters, rows: Rows) -> Statistics:
        chance = propensity(parameters.per_site["treatment"], rows, rows.fold)
        clipped = jnp.clip(chance, self.trim, 1.0 - self.trim)
        arms = rows.people * jnp.stack([1.0 - rows.treatment, rows.treatment])
        weight = capped(rows.present * arms / jnp.stack([1.0 - clipped, clipped]), rows.least)
        values, known = _known(rows)
        sums = {"people": arms @ known, "sum": arms @ (known * values), "square": arms @ (known * values**2)}
        weighted = {"weight": weight @ known, "weighted": weight @ (known * values)}
        people = arms.sum(axis=1)
        whole = {"arms": people, "weights": weight.sum(axis=1), "weight_squares": (weight**2).sum(axis=1)}
        # A propensity of 1 is in the last bin.
        place = jnp.clip(jnp.searchsorted(EDGES, chance, side="right") - 1, 0, len(EDGES) - 2)
        histogram = arms @ (place[:, None] == jnp.arange(len(EDGES) - 1))
        summed = sums | weighted | whole | {"histogram": histogram}
        return Statistics(summed, {"limited": jnp.asarray(rows.least > 0.0, float)})

    def _withheld(self, every: Statistics) -> Statistics:
        """What is sent of the sums over all people of a site."""
        free, people, histogram = (
            every.per_site["limited"] <= 0.0,
            every.summed["arms"],
            every.summed["histogram"],
        )
        sums = {name: every.summed[name] for name in ("people", "sum", "square")}
        weighted = {name: every.summed[name] for name in ("weight", "weighted")}
        whole = {name: every.summed[name] for name in ("arms", "weights", "weight_squares")}
        kept, shown = self._kept(sums, people), _shown(histogram)
        per_site = {name: jnp.where(kept, found, 0.0) for name, found in sums.items()}
        per_site |= {"kept": kept.astype(float), "histogram": jnp.where(shown, histogram, 0.0)}
        per_site |= {"shown": shown.astype(float)}
        per_site |= {name: jnp.where(_few(people), 0.0, found) for name, found in whole.items()}
        # With limits, what is withheld at the site is missing from its part of the sums over sites too: the
        # coordinator sees each part before it adds them up.
        summed = {name: jnp.where(kept | free, found, 0.0) for name, found in (sums | weighted).items()}
        summed |= {name: jnp.where(~_few(people) | free, found, 0.0) for name, found in whole.items()}
        return Statistics({**summed, "histogram": jnp.where(shown | free, histogram, 0.0)}, per_site)

    def bounds(self) -> Bounds:
        return REGRESSIONS

    def _kept(self, sums: dict[str, Array], people: Array) -> Array:
        """Features for which no arm has few observed values, few missing values, few ones or few zeros."""
        ones = sums["people"] * self.mean + sums["sum"] * self.sd
        groups = jnp.stack([ones, sums["people"] - ones])
        small = jnp.any(_few(jnp.round(groups)), axis=(0, 1)) & self.flag
        missing = people[:, None] - sums["people"]
        return ~(small | jnp.any(_few(sums["people"]) | _few(missing), axis=0))


def _known(rows: Rows) -> tuple[Array, Array]:
    """Every regressor, and whether it is observed; missingness indicators always are."""
    width = rows.seen.shape[1]
    everybody = jnp.ones((len(rows.present), rows.covariates.shape[1] - 2 * width))
    known = jnp.concatenate([everybody, rows.seen, jnp.ones_like(rows.seen)], axis=1)
    return rows.covariates, known


def _few(count: Array) -> Array:
    """As `unpooled.disclosure.withheld.few`, in JAX."""
    return (count > 0.0) & (count < CELL)


def _shown(histogram: Float[Array, "2 bins"]) -> Array:
    """Which bins are sent; if the withheld bins hold few people together, the next smallest is withheld."""
    few = _few(histogram) | _few(histogram.sum(axis=1))[:, None]
    recoverable = _few((few * histogram).sum(axis=1))
    rest = jnp.where(few | (histogram == 0.0), jnp.inf, histogram)
    next_smallest = jnp.arange(histogram.shape[1]) == jnp.argmin(rest, axis=1)[:, None]
    return ~(few | (recoverable[:, None] & next_smallest & jnp.isfinite(rest)))
