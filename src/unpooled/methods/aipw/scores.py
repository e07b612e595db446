"""What an estimate and its standard error need of a site, once the regressions are known."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.methods.aipw.regressions import features
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Stage


class Scores(Stage):
    """ψ = μ₁ − μ₀ + w(y − μ₁)/e − (1 − w)(y − μ₀)/(1 − e), everybody by the fits without their fold."""

    trim: float = eqx.field(static=True)
    reveals: ClassVar[str] = (
        "at this site: number of people, mean and sum of squared deviations of their doubly robust scores; "
        "for sums over sites: how many propensities were clipped"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        own = parameters.per_site
        chance, clipped = _clipped(own["treatment"], rows, self.trim)
        means = jnp.einsum("nf,naf->an", features(rows.covariates), own["outcome"][rows.fold])
        seen = jnp.where(rows.treatment > 0.0, means[1], means[0])
        weight = rows.treatment / chance - (1.0 - rows.treatment) / (1.0 - chance)
        score = means[1] - means[0] + weight * (rows.outcome - seen)
        people = rows.present.sum()
        mean = rows.present @ score / people
        each = {"people": people, "mean": mean, "squares": rows.present @ (score - mean) ** 2}
        return Statistics({"clipped": rows.present @ clipped}, each)


class WeightedOutcomes(Stage):
    """Weighted means by arm and what their influence functions need, weights 1/e and 1/(1 − e)."""

    trim: float = eqx.field(static=True)
    reveals: ClassVar[str] = (
        "at this site, by arm: number of people, sum of inverse-propensity weights, the weighted mean of the "
        "outcome, sums of squared weights with deviations from that mean and their squares; for sums over "
        "sites: how many propensities were clipped"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        chance, clipped = _clipped(parameters.per_site["treatment"], rows, self.trim)
        arms = rows.present * jnp.stack([1.0 - rows.treatment, rows.treatment])
        weight = arms / jnp.stack([1.0 - chance, chance])
        total = weight.sum(axis=1)
        mean = weight @ rows.outcome / total
        apart = rows.outcome - mean[:, None]
        powers = jnp.stack([jnp.ones_like(apart), apart, apart**2], axis=-1)
        squares = jnp.einsum("an,anp->ap", weight**2, powers)
        each = {"people": arms.sum(axis=1), "weight": total, "mean": mean, "squares": squares}
        return Statistics({"clipped": rows.present @ clipped}, each)


def propensity(coefficients: Array, rows: Rows) -> Float[Array, " n"]:
    """By the fit without a person's fold."""
    return jax.nn.sigmoid(jnp.einsum("nf,nf->n", features(rows.covariates), coefficients[rows.fold]))


def _clipped(coefficients: Array, rows: Rows, trim: float) -> tuple[Float[Array, " n"], Array]:
    """Propensities not nearer to 0 or 1 than this, and who had one that was."""
    chance = propensity(coefficients, rows)
    return jnp.clip(chance, trim, 1.0 - trim), (chance < trim) | (chance > 1.0 - trim)
