"""Effects and held-out densities at a site, under draws of the candidate models' parameters."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.disclosure.effective_people import spread_out
from unpooled.maths.compilation import Program
from unpooled.methods.causal_rff.classes.log_likelihoods import (
    PARTS,
    ClassLogLikelihoods,
    ColumnKinds,
    of_covariates,
    of_outcome,
    of_treatment,
)
from unpooled.methods.causal_rff.observed.regression import COEFFICIENTS, Design, linear_predictor
from unpooled.methods.causal_rff.paper.effects import GaussianModel
from unpooled.models.calibration import exceedances
from unpooled.models.link import Link
from unpooled.models.outcome_family import Family, Logit, individual_effect
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import ANY, FOLD, Bounds, Stage, union


class RegressionModel(eqx.Module):
    """Outcomes given x and the arm by regression, under one draw of the coefficients."""

    design: Design
    family: Family
    link: Link | None = None
    """The link of counts."""

    def arms(self, draw: Arrays, rows: Rows) -> Float[Array, "n 2"]:
        """The expected outcome in both arms, or its logit, or its logarithm."""
        features = self.design.features(rows.covariates, draw["length"])
        found = linear_predictor(features, draw["common"], draw["site"])
        return found if self.link is None else self.link.predictor(found)

    def bounds(self) -> Bounds:
        return COEFFICIENTS

    def outcomes(self, draw: Arrays, rows: Rows, key: Array | None = None) -> Float[Array, "n 2"]:
        return self.family.standardised_mean(self.family.mean(self.arms(draw, rows)))

    def individual(self, draw: Arrays, rows: Rows, key: Array, correlation: Array) -> Float[Array, " n"]:
        return individual_effect(self.family, self.arms(draw, rows), draw["noise"], rows, correlation, key)

    def log_density(self, draw: Arrays, rows: Rows) -> Float[Array, " n"]:
        """log p(y | x, w)."""
        arm = rows.treatment.astype(int)
        predictor = self.arms(draw, rows)[jnp.arange(len(arm)), arm]
        return self.family.log_density(self.family.seen(rows.outcome), predictor, draw["noise"][arm])

    def predicted(self, draw: Arrays, rows: Rows) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Mean and variance of a continuous y given (x, w)."""
        arm = rows.treatment.astype(int)
        return self.arms(draw, rows)[jnp.arange(len(arm)), arm], draw["noise"][arm]


class ClassModel(eqx.Module):
    """Outcomes given x through latent classes, under one draw of the classes' parameters."""

    columns: ColumnKinds
    family: Family
    link: Link | None = None
    """The link of counts."""

    def bounds(self) -> Bounds:
        return PARTS

    def outcomes(self, draw: Arrays, rows: Rows, key: Array | None = None) -> Float[Array, "n 2"]:
        """Σ_z p(z | x)·θ_z; under an intervention the treatment carries no information on z."""
        likelihoods = ClassLogLikelihoods(**draw)
        share = jax.nn.softmax(of_covariates(likelihoods, self.columns, rows), axis=1)
        return self.family.standardised_mean(share @ self.family.mean(self._predictor(likelihoods)).T)

    def individual(self, draw: Arrays, rows: Rows, key: Array, correlation: Array) -> Float[Array, " n"]:
        """Draw the class given all that is observed of a person, then the other arm's outcome given it."""
        likelihoods = ClassLogLikelihoods(**draw)
        logs = of_covariates(likelihoods, self.columns, rows) + of_treatment(likelihoods, rows)
        logs = logs + of_outcome(likelihoods, rows, binary=isinstance(self.family, Logit), link=self.link)
        first, second = jax.random.split(key)
        chosen = jnp.argmax(logs + jax.random.gumbel(first, logs.shape), axis=1)
        both = self._predictor(likelihoods)[:, chosen].T
        return individual_effect(self.family, both, likelihoods.noise, rows, correlation, second)

    def log_density(self, draw: Arrays, rows: Rows) -> Float[Array, " n"]:
        """log p(y | x, w)."""
        likelihoods = ClassLogLikelihoods(**draw)
        logs = of_covariates(likelihoods, self.columns, rows) + of_treatment(likelihoods, rows)
        binary = isinstance(self.family, Logit)
        outcome = of_outcome(likelihoods, rows, binary=binary, link=self.link, predictive=True)
        return jax.nn.logsumexp(logs + outcome, axis=1) - jax.nn.logsumexp(logs, axis=1)

    def predicted(self, draw: Arrays, rows: Rows) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Mean and variance of a continuous y given (x, w)."""
        likelihoods, arm = ClassLogLikelihoods(**draw), rows.treatment.astype(int)
        logs = of_covariates(likelihoods, self.columns, rows) + of_treatment(likelihoods, rows)
        share, means = jax.nn.softmax(logs, axis=1), likelihoods.outcome[arm]
        mean = jnp.sum(share * means, axis=1)
        within = likelihoods.noise[arm] + jnp.sum(share * likelihoods.variance[arm], axis=1)
        return mean, within + jnp.sum(share * (means - mean[:, None]) ** 2, axis=1)

    def _predictor(self, likelihoods: ClassLogLikelihoods) -> Float[Array, "2 k"]:
        return likelihoods.outcome if self.link is None else self.link.predictor(likelihoods.outcome)


Model = RegressionModel | ClassModel | GaussianModel
"""Outcomes are [n, 2] for one draw, and [k, n, 2] for a bundle of draws with common parameters."""


class HeldOutDensity(Stage):
    """The log predictive density of held-out outcomes under each model."""

    models: tuple[Model, ...]
    reveals: ClassVar[str] = "for sums over sites: log density of held-out outcomes under each model"

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        fixed = parameters.fixed
        use = rows.present * (rows.fold == fixed["fold"])
        found = []
        for model, shared, own in zip(self.models, fixed["draws"], parameters.per_site["draws"], strict=True):
            draws = {**shared, **own}
            each = jax.lax.map(lambda draw, model=model: model.log_density(draw, rows), draws)
            density = jax.nn.logsumexp(each, axis=0) - jnp.log(each.shape[0])
            found.append(use @ spread_out(density, use, rows.least))
        return Statistics({"density": jnp.stack(found), "people": use.sum()})

    def bounds(self) -> Bounds:
        return {**union(*(model.bounds() for model in self.models)), "fold": FOLD, "key": ANY}


class HeldOutDistances(Stage):
    """How many held-out outcomes are further from their prediction than a number of its sds."""

    model: Model
    reveals: ClassVar[str] = (
        "for sums over sites, by arm: how many held-out outcomes are further from their prediction than each "
        "of 34 numbers of sds"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        def without(draws: Arrays) -> Float[Array, "2 n"]:
            mean, variance = jax.lax.map(lambda draw: self.model.predicted(draw, rows), draws)
            return jnp.stack([mean.mean(axis=0), jnp.var(mean, axis=0) + variance.mean(axis=0)])

        found = jax.lax.map(without, {**parameters.fixed["draws"], **parameters.per_site["draws"]})
        mean, variance = jnp.take_along_axis(found, jnp.maximum(rows.fold, 0)[None, None, :], axis=0)[0]
        alike = jnp.ones_like(mean)
        return Statistics(exceedances((rows.outcome - mean) / jnp.sqrt(variance), alike, rows))

    def bounds(self) -> Bounds:
        return {**self.model.bounds(), "key": ANY}


def each_draw(model: Model, draws: Arrays, people: Rows) -> np.ndarray:
    """CATE draws [K, people]."""
    return _unbundled(_effects(model, draws, people))


@Program
def _effects(model: Model, draws: Arrays, people: Rows) -> Array:
    both = jax.lax.map(lambda draw: model.outcomes(draw, people), draws)
    return both[..., 1] - both[..., 0]


def each_outcome(model: Model, draws: Arrays, people: Rows) -> np.ndarray:
    """Draws [K, people, 2] of the mean outcomes in both arms."""
    return np.asarray(_outcomes(model, draws, people))


@Program
def _outcomes(model: Model, draws: Arrays, people: Rows) -> Array:
    return jax.lax.map(lambda draw: model.outcomes(draw, people), draws)


def each_individual(
    model: Model, draws: Arrays, people: Rows, keys: np.ndarray, correlation: float
) -> np.ndarray:
    """ITE draws [K, people]."""
    return _unbundled(_individuals(model, draws, people, keys, jnp.asarray(correlation)))


@Program
def _individuals(model: Model, draws: Arrays, people: Rows, keys: np.ndarray, correlation: Array) -> Array:
    def one(leaves: tuple[Arrays, Array]) -> Array:
        return model.individual(leaves[0], people, jax.random.wrap_key_data(leaves[1]), correlation)

    return jax.lax.map(one, (draws, keys))


def _unbundled(effects: Array) -> np.ndarray:
    return np.asarray(effects).reshape(-1, effects.shape[-1])
