"""The model of the three networks, evaluated on rows under one draw of their weights."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.scipy.stats as jst
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths import networks
from unpooled.maths.streams import stream
from unpooled.methods.causal_fi.columns import layout_of
from unpooled.methods.causal_fi.paper import mean_field
from unpooled.methods.causal_fi.paper.entries import Entries, make_entries
from unpooled.methods.causal_fi.settings import CausalFIContext, CausalFISettings
from unpooled.models.outcome_family import Gaussian, Poisson, Probit, family_of
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import ANY, LINEAR, LOG, Bounds

BOUNDS: Bounds = {"weight": LINEAR, "bias": LINEAR, "log_noise": LOG, "log_sd": LOG, "key": ANY}
"""Bounds of the networks' parameters."""


class NetworkModel(eqx.Module):
    """p(u | y, w, x), p̂(u_mis | x, u_seen) and p̂(y | w, x, u)."""

    entries: Entries
    family: Gaussian | Probit | Poisson
    start: Float[Array, ""]
    """The outcome's predictor for a network output of 0."""

    def given_outcome(self, imputation: Arrays, rows: Rows) -> Float[Array, "n o"]:
        """Outputs for u from the network of each person's own arm."""
        inputs = jnp.concatenate([rows.covariates, rows.outcome[:, None]], axis=1)
        return _own(networks.apply(imputation["layers"], inputs), rows)

    def given_shown(self, confounders: Arrays, x: Array, u: Array, shown: Array) -> Float[Array, "n o"]:
        """Outputs for u given x and the entries of u that are shown."""
        return networks.apply(confounders["layers"], jnp.concatenate([x, u * shown, shown], axis=1))[0]

    def completed(self, imputation: Arrays, rows: Rows, key: Array) -> Float[Array, "n u"]:
        """u with missing values imputed given the person's own treatment and outcome."""
        return self.entries.fill(self.given_outcome(imputation, rows), rows.incomplete, rows.seen, key)

    def predictors(self, outcome: Arrays, x: Array, u: Array) -> Float[Array, "n 2"]:
        """η in both arms."""
        return self.start + networks.apply(outcome["layers"], jnp.concatenate([x, u], axis=1))[:, :, 0].T

    def outcomes(self, outcome: Arrays, x: Array, u: Array) -> Float[Array, "n 2"]:
        """E[Y | x, u] in both arms, in standard units."""
        return self.family.standardised_mean(self.family.mean(self.predictors(outcome, x, u)))

    def effect(self, outcome: Arrays, x: Array, u: Array) -> Float[Array, " n"]:
        """E[Y(1) − Y(0) | x, u], in standard units."""
        both = self.outcomes(outcome, x, u)
        return both[:, 1] - both[:, 0]

    def log_outcome(self, outcome: Arrays, rows: Rows, u: Array) -> Float[Array, " n"]:
        """log p̂(y | w, x, u)."""
        predictor = _own(self.predictors(outcome, rows.covariates, u).T, rows)
        seen = self.family.seen(rows.outcome)
        if isinstance(self.family, Gaussian):
            log_sd = outcome["log_noise"][rows.treatment.astype(int)]
            return jst.norm.logpdf(seen, predictor, jnp.exp(log_sd))
        return self.family.log_density(seen, predictor)


def _own(heads: Float[Array, "2 n ..."], rows: Rows) -> Float[Array, "n ..."]:
    """Select the head of each person's own arm."""
    return heads[rows.treatment.astype(int), jnp.arange(len(rows.treatment))]


def make_model(context: CausalFIContext) -> NetworkModel:
    """The model of a study, identical at the coordinator and at the sites."""
    family = family_of(context.family, context.outcome_mean, context.outcome_sd)
    assert isinstance(family, Gaussian | Probit | Poisson)
    return NetworkModel(make_entries(layout_of(context)), family, jnp.asarray(family.start()))


class Starts(NamedTuple):
    """Starting values of q for the networks of both stages."""

    imputation: Arrays
    surrogates: Arrays


def starts(model: NetworkModel, settings: CausalFISettings, context: CausalFIContext, seed: int) -> Starts:
    """Random initial networks, with a narrow q about each."""
    x, u, outputs = context.covariates, len(model.entries.centre), model.entries.outputs
    rng, hidden = stream(seed, "network weights"), settings.hidden
    imputation = {"layers": networks.make_stacked(rng, x + 1, hidden, outputs, heads=2)}
    confounders = {"layers": networks.make_stacked(rng, x + 2 * u, hidden, outputs, heads=1)}
    outcome: Arrays = {"layers": networks.make_stacked(rng, x + u, hidden, 1, heads=2)}
    if model.family.learns_noise:
        outcome["log_noise"] = np.zeros(2)
    both = {"confounders": confounders, "outcome": outcome}
    return Starts(mean_field.initial(imputation), mean_field.initial(both))
