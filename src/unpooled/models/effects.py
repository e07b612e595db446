"""Mean outcomes in both arms under each draw: of a site's people by group, and of their population."""

from __future__ import annotations

from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.disclosure.effective_people import capped
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import GROUPS, OVERLAP, Arrays, AverageOutcomes, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import ANY, Bounds, Stage

REVEALS = (
    "number of people by group, and draws of the mean outcome under control and under treatment of each "
    "group (everybody, the treated, the controls, and groups that the study names), over its people and over "
    "their population"
)


BOOTSTRAP = "bootstrap"
"""Name of the random key from which people's weights, and values that are missing, are drawn."""


def group_weights(rows: Rows, propensity: Float[Array, " n"] | None = None) -> Float[Array, "g n"]:
    """How much each person counts in each group: `GROUPS`, the last only with propensities, then others."""
    arms = [jnp.ones_like(rows.treatment), rows.treatment, 1.0 - rows.treatment]
    overlap = [] if propensity is None else [propensity * (1.0 - propensity)]
    named = [] if rows.groups is None else list(rows.groups)
    # Propensities may be chosen so that few people overlap.
    overlap = [capped(rows.present * one, rows.least) for one in overlap]
    whole = [rows.present * one for one in arms]
    return jnp.stack([*whole, *overlap, *(rows.present * one for one in named)])


def averages(
    outcomes: Float[Array, "*k n a"], groups: Float[Array, "g n"], rows: Rows, key: Array
) -> dict[str, Array]:
    """The mean outcomes [*k, g, a] of groups of the site's people, and of their population by Bayesian
    bootstrap weights; and the number of people in each group."""
    weight = bootstrap_weights(key, rows, outcomes.shape[:-2])
    return {
        "sample": average(outcomes, groups, rows),
        "population": average(outcomes, groups * weight[..., None, :], rows),
        "weight": jnp.broadcast_to(groups.sum(axis=-1), (*outcomes.shape[:-2], len(groups))),
    }


def bootstrap_weights(key: Array, rows: Rows, draws: tuple[int, ...]) -> Float[Array, "*k n"]:
    """Exponential weights of the people, or of their clusters, for each draw; sampling weights come on top.

    A person's do not depend on the padding. With sampling weights w and one exponential weight by cluster,
    the variance of a mean m is Σ_c (Σ_{i in c} w (y − m))²/(Σ w)², as of independent clusters.
    """
    size = rows.present.shape

    def one(key: Array) -> Array:
        drawn = jax.random.exponential(key, size)
        return drawn if rows.cluster is None else drawn[rows.cluster]

    return rows.people * (jax.vmap(one)(jax.random.split(key, *draws)) if draws else one(key))


def average(
    outcomes: Float[Array, "*k n a"], weight: Float[Array, "*w g n"], rows: Rows
) -> Float[Array, "*k g a"]:
    """The weighted means; with limits, close to the median if few people dominate. 0 for an empty group.

    A draw may be chosen so that only one person's outcome differs from the others'. The deviations from the
    median are therefore capped. A factor on their sum would move the means of small groups to the median.
    """
    total = weight.sum(axis=-1)[..., None]
    total = jnp.where(total > 0.0, total, 1.0)
    if not rows.least:
        return jnp.einsum("...gn,...na->...ga", weight, outcomes) / total
    there = jnp.where(rows.present[:, None] > 0.0, outcomes, jnp.nan)
    centre = jnp.nanmedian(there, axis=-2)
    deviation = jnp.where(rows.present[:, None] > 0.0, outcomes - centre[..., None, :], 0.0)
    # [*k, group, arm, person]
    each = jnp.swapaxes(deviation, -1, -2)[..., None, :, :] * weight[..., :, None, :]
    each = jnp.sign(each) * capped(jnp.abs(each), rows.least)
    return jnp.where(weight.sum(axis=-1)[..., None] > 0.0, centre[..., None, :], 0.0) + (
        each.sum(axis=-1) / total
    )


class OutcomeModel(Protocol):
    """A model of the outcomes of a site's people under one draw; `key` may be used to draw missing values."""

    def outcomes(self, draw: Arrays, rows: Rows, key: Array) -> Float[Array, "*k n 2"]:
        """The mean outcomes in both arms [n, 2] in standard units, or [k, n, 2] for a bundle of draws."""
        ...

    def bounds(self) -> Bounds:
        """Bounds of the parameters of a draw."""
        ...


class OutcomeAverages(Stage):
    """A base class of stages that send mean outcomes by site and group, from `averages`."""

    of_effects: ClassVar[bool] = True
    reveals: ClassVar[str] = REVEALS

    def people_sums(self, own: Arrays, people: Array) -> Arrays:
        weight, share = own["weight"], own["weight"][..., None]
        return {"weight": weight, "sample": share * own["sample"], "population": share * own["population"]}

    def of_people(self, sums: Arrays) -> Arrays:
        total = np.asarray(sums["weight"])[..., None]
        total = np.where(total > 0.0, total, 1.0)
        return {**sums, "sample": sums["sample"] / total, "population": sums["population"] / total}


class AverageOfOutcomes(OutcomeAverages):
    """A site's mean outcomes: of its people, and of the population they are a sample of."""

    model: OutcomeModel

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        draw = {**parameters.fixed, **parameters.per_site}
        key = rows.own_key(jax.random.wrap_key_data(draw.pop(BOOTSTRAP)))
        for_outcomes, for_weights = jax.random.split(key)
        outcomes = self.model.outcomes(draw, rows, for_outcomes)
        return Statistics(per_site=averages(outcomes, group_weights(rows), rows, for_weights))

    def bounds(self) -> Bounds:
        return {**self.model.bounds(), BOOTSTRAP: ANY}


def average_outcomes(own: Arrays, *, overlap: bool = False) -> AverageOutcomes:
    """The draws [K, site, …] of a reply: one of each question, or several, [question, site, K, …]."""
    bundled = np.ndim(own["sample"]) == 5

    def by_draw(found: np.ndarray) -> np.ndarray:
        return np.concatenate(np.swapaxes(found, 1, 2)) if bundled else np.asarray(found)

    sample, population, weight = (by_draw(own[name]) for name in ("sample", "population", "weight"))
    groups = GROUPS if overlap else tuple(name for name in GROUPS if name != OVERLAP)
    return AverageOutcomes(groups, sample, population, weight.mean(axis=0))
