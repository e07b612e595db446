"""Stages: the part of a method that runs on the rows, S_s in J(θ) = F(θ, Σ_s S_s(θ))."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from unpooled.protocol.batch import one_by_one
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows


class Stage(eqx.Module):
    """S, computed at the site by a pure JAX function. Array fields have the same values at every party."""

    reveals: ClassVar[str]
    """What the statistics reveal about a site, in one sentence for custodians."""
    often: ClassVar[bool] = True
    """Whether the stage is asked in many rounds of a fit, so that its program should run as fast as it can;
    otherwise it is compiled with less effort unless the table is large."""
    in_batches: ClassVar[bool] = False
    """Whether the statistics of a site follow from those of batches of its people, by `merged`, so that its
    table need not be in memory as a whole."""
    of_effects: ClassVar[bool] = False
    """Whether `per_site` holds effects by site, which a study may leave out. `people_sums` and `of_people`
    then say how those of all sites together follow from sums."""

    by_fold: ClassVar[bool] = False
    """Whether parameters may differ between folds, so that sums over the people of a fold could be told."""

    @abstractmethod
    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        """S_s(θ) for one θ."""

    def of_batch(self, parameters: Parameters, rows: Rows) -> Statistics:
        """What `merged` needs from each batch for one θ; it does not leave the site."""
        return self.statistics(parameters, rows)

    def merged(self, parts: Statistics) -> Statistics:
        """The statistics [θ, …] of a site from those of its batches [batch, θ, …]; by default their sums."""
        return jax.tree.map(lambda leaf: leaf.sum(axis=0), parts)

    def people_sums(self, own: Arrays, people: Array) -> Arrays:
        """The sums over a site's people of which `own`, effects by site, are means; from `of_batch`."""
        return {"people": people, **{name: people * value for name, value in own.items()}}

    def of_people(self, sums: Arrays) -> Arrays:
        """The effects [θ, …] of all sites together, from sums over all people."""
        people = sums["people"]
        return {
            name: value / people.reshape(-1, *[1] * (value.ndim - 1))
            for name, value in sums.items()
            if name != "people"
        }

    @abstractmethod
    def bounds(self) -> Bounds:
        """The smallest and largest value of each parameter in any honest question, in standard units.

        A parameter is named by the innermost key under which it is sent. Sites refuse other parameters and
        other values.
        """


Bounds = dict[str, tuple[float | np.ndarray, float | np.ndarray]]
"""The smallest and largest value of parameters by name; arrays broadcast to the parameter's shape."""


def union(*several: Bounds) -> Bounds:
    """Bounds within which every parameter is within its bounds in one of several."""
    found: Bounds = {}
    for bounds in several:
        for name, (low, high) in bounds.items():
            lowest, highest = found.get(name, (low, high))
            found[name] = (np.minimum(lowest, low), np.maximum(highest, high))
    return found


ANY = (-float("inf"), float("inf"))
"""Bounds of keys of random numbers."""
FOLD = (-1.0, 20.0)
"""Bounds of the fold that is left out."""
FOLD_DRAW = (0.0, 9.0)
"""Bounds of the number of a draw of the folds, counted from 0."""
LINEAR = (-100.0, 100.0)
"""Bounds of coefficients of a linear predictor with values on the scale of the outcome."""
LOGIT = (-15.0, 15.0)
"""Bounds of coefficients of a logit or probit: with larger ones a smooth curve becomes a step."""
LOG = (-12.0, 6.0)
"""Bounds of logarithms of scales."""


class Objective(Stage):
    """A stage with a scalar F, which the coordinator minimises."""

    one_exchange: ClassVar[bool] = False
    """True when F = prior(θ) + S with a scalar S. The cotangent is then always 1, so the value and the
    gradient are obtained in one exchange (the paper's Algorithm 1)."""

    @abstractmethod
    def value(self, parameters: Parameters, statistics: Statistics) -> Float[Array, ""]:
        """F(θ, S)."""

    def value_and_slopes(
        self, free: Arrays, fixed: Arrays, statistics: Statistics
    ) -> tuple[Array | np.ndarray, Arrays, Statistics]:
        """F and its gradients with respect to θ and S, for a batch of θ and their statistics.

        By automatic differentiation, unless a closed form is known.
        """
        return one_by_one(value_and_slopes_of, (free, fixed, statistics), self)


def value_and_slopes_of(
    leaves: tuple[Arrays, Arrays, Statistics], objective: Objective
) -> tuple[Array, Arrays, Statistics]:
    """F and its gradients for one θ, by automatic differentiation."""
    free, fixed, statistics = leaves

    def value(free: Arrays, statistics: Statistics) -> Array:
        return objective.value(Parameters(free, fixed), statistics)

    result, (direct, cotangent) = jax.value_and_grad(value, argnums=(0, 1))(free, statistics)
    return result, direct, cotangent
